//! The stack of this program's first thread: raised as far as it goes, and refused by name when even
//! that is too low, since who overflows it is killed without a word.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::report::advice;

/// The usual limit.
const WANTED: u64 = 8 << 20;
/// A build with checks uses a third of it.
const LEAST: u64 = 1 << 20;

/// Call it first thing: the kernel looks at the limit whenever the stack grows.
pub(crate) fn raise() -> anyhow::Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Stack);
    if current.is_none_or(|current| current >= WANTED) {
        return Ok(());
    }
    let wanted = Rlimit {
        current: Some(WANTED),
        maximum: maximum.map(|maximum| maximum.max(WANTED)),
    };
    // Above the hard limit only root may go, and not in every container.
    if setrlimit(Resource::Stack, wanted).is_err() {
        let highest = Rlimit {
            current: maximum,
            maximum,
        };
        setrlimit(Resource::Stack, highest).ok();
    }
    judge(getrlimit(Resource::Stack).current)
}

fn judge(limit: Option<u64>) -> anyhow::Result<()> {
    match limit {
        Some(limit) if limit < LEAST => Err(advice(
            format!("the hard limit of stack is {limit} bytes, and this program needs {LEAST}"),
            "`ulimit -Hs 8192` in the shell that starts it, or LimitSTACK=8M in its systemd unit",
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_that_would_overflow_is_refused_by_name() {
        let error = judge(Some(65_536)).unwrap_err();
        assert!(error.to_string().contains("stack is 65536"), "{error}");
        assert!(judge(Some(LEAST)).is_ok() && judge(None).is_ok());
    }
}
