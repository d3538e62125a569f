//! Names of things. A sandbox id is part of a host name and of paths on disk, so it is checked
//! once, here, and carried as a type from then on.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Length of the random part of sandbox and template ids, as E2B's.
const RANDOM_LENGTH: usize = 20;
/// `<port>-<id>` must fit into one DNS label of 63 characters.
const MAX_LENGTH: usize = 40;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid {kind} id")]
pub struct InvalidId {
    pub kind: &'static str,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $valid:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                let valid: fn(&str) -> bool = $valid;
                if valid(text) { Ok(Self(text.to_owned())) } else { Err(InvalidId { kind: $kind }) }
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(text: String) -> Result<Self, InvalidId> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }
    };
}

id!(
    /// `i` and 20 characters of `[a-z0-9]`; anything of `[a-z0-9]+` is understood.
    SandboxId,
    "sandbox",
    lower_alphanumeric
);
id!(
    /// A template's own id (not its name): 20 characters of `[a-z0-9]`.
    TemplateId,
    "template",
    lower_alphanumeric
);
id!(
    /// A tenant (E2B says team or project): a UUID.
    TenantId,
    "tenant",
    uuid_shaped
);

impl SandboxId {
    pub fn random() -> Self {
        Self(format!("i{}", random_text()))
    }
}

impl TemplateId {
    pub fn random() -> Self {
        Self(random_text())
    }
}

fn lower_alphanumeric(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= MAX_LENGTH
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
}

fn uuid_shaped(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(i, b)| match i {
            8 | 13 | 18 | 23 => b == b'-',
            _ => b.is_ascii_digit() || (b'a'..=b'f').contains(&b),
        })
}

fn random_text() -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz012345";
    let mut bytes = [0_u8; RANDOM_LENGTH];
    fill_random(&mut bytes);
    bytes
        .iter()
        .map(|b| char::from(ALPHABET[usize::from(b & 31)]))
        .collect()
}

/// Fills a buffer from the kernel's generator.
///
/// # Panics
/// When the kernel has no random numbers to give: nothing that needs a secret may go on then.
pub fn fill_random(bytes: &mut [u8]) {
    #[expect(
        clippy::expect_used,
        reason = "without randomness every token would be guessable"
    )]
    getrandom::fill(bytes).expect("the kernel gives random bytes");
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_ids_are_distinct_and_valid() {
        let (a, b) = (SandboxId::random(), SandboxId::random());
        assert_ne!(a, b);
        assert_eq!(a.as_str().len(), 21);
        assert_eq!(a.as_str().parse::<SandboxId>(), Ok(a));
    }

    #[test]
    fn path_and_host_tricks_are_not_ids() {
        for bad in ["", "..", "a/b", "A", "i-1", "i.1", "é", &"a".repeat(41)] {
            assert!(bad.parse::<SandboxId>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn tenant_ids_are_lower_case_uuids() {
        assert!(
            "01890a5d-ac96-774b-bcce-b302099a8057"
                .parse::<TenantId>()
                .is_ok()
        );
        assert!(
            "01890A5D-ac96-774b-bcce-b302099a8057"
                .parse::<TenantId>()
                .is_err()
        );
        assert!("default".parse::<TenantId>().is_err());
    }
}
