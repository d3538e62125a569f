//! Cache keys of steps: a hash of everything that a step depends on.

use std::fmt;

use sha2::{Digest, Sha256};
use soulbox_types::TenantId;

/// The name of a state of files: that of the state before, and what was done to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key(String);

impl Key {
    /// The start of a chain. Tenants have chains of their own: that something is in the cache
    /// reveals nothing about what others build.
    pub(crate) fn base(tenant: &TenantId, parts: &[&str]) -> Self {
        Self::of(std::iter::once(tenant.as_str()).chain(parts.iter().copied()))
    }

    pub(crate) fn then(&self, parts: &[&str]) -> Self {
        Self::of(std::iter::once(self.0.as_str()).chain(parts.iter().copied()))
    }

    /// Every part with its length in front: no two lists read the same.
    fn of<'a>(parts: impl Iterator<Item = &'a str>) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Self(hex::encode(hash.finalize()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Enough to distinguish the steps of a build, in its log.
    pub(crate) fn short(&self) -> &str {
        &self.0[..8]
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(last: char) -> TenantId {
        format!("01890a5d-ac96-774b-bcce-b302099a805{last}")
            .parse()
            .unwrap()
    }

    #[test]
    fn the_same_steps_have_the_same_key_and_any_other_another() {
        let base = Key::base(&tenant('1'), &["image", "sha256:1"]);
        assert_eq!(base, Key::base(&tenant('1'), &["image", "sha256:1"]));
        assert_ne!(base, Key::base(&tenant('2'), &["image", "sha256:1"]));
        assert_eq!(base.then(&["RUN", "true"]), base.then(&["RUN", "true"]));
        assert_ne!(base.then(&["RUN", "true"]), base.then(&["RUN", "false"]));
        assert_ne!(base.then(&["ab", "c"]), base.then(&["a", "bc"]));
        assert_ne!(base.then(&["a"]), base.then(&["a", ""]));
    }
}
