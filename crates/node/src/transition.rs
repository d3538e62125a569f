//! The moves between states that a sandbox can make. Every change of state goes through here, so
//! that nothing brings back one whose end has begun.

use soulbox_runtime::{Error, Result};
use soulbox_types::{SandboxId, SandboxState};

/// One row per move, with who makes it.
const ALLOWED: [(SandboxState, SandboxState); 7] = {
    use SandboxState::{Creating, Destroying, Paused, Running};
    [
        // create, and the hand-over of a waiting one
        (Creating, Running),
        (Creating, Destroying),
        // the hand-over of a waiting one begins
        (Running, Creating),
        // pause, hold, export
        (Running, Paused),
        (Running, Destroying),
        // resume, and a pause that failed
        (Paused, Running),
        (Paused, Destroying),
    ]
};

/// Nothing leaves [`SandboxState::Destroying`]: to everybody else it is gone already.
pub(crate) fn check(id: &SandboxId, from: SandboxState, to: SandboxState) -> Result<()> {
    if ALLOWED.contains(&(from, to)) {
        return Ok(());
    }
    Err(match from {
        SandboxState::Destroying => Error::SandboxNotFound(id.clone()),
        state => Error::WrongState {
            id: id.clone(),
            state,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_comes_back_from_its_end() {
        use SandboxState::{Creating, Destroying, Paused, Running};

        let id = SandboxId::random();
        for to in [Creating, Running, Paused, Destroying] {
            assert!(matches!(
                check(&id, Destroying, to),
                Err(Error::SandboxNotFound(_))
            ));
        }
    }

    #[test]
    fn what_rests_cannot_be_paused_again_and_what_is_made_cannot_rest() {
        use SandboxState::{Creating, Paused};

        let id = SandboxId::random();
        for from in [Creating, Paused] {
            assert!(matches!(
                check(&id, from, Paused),
                Err(Error::WrongState { state, .. }) if state == from
            ));
        }
    }
}
