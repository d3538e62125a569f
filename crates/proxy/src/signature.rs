//! Signed file URLs on a shared host carry neither host nor headers that name the sandbox. The
//! sandbox is then the one whose token yields the signature: one hash per running sandbox. Whether
//! the URL is still valid is checked by envd.
//!
//! These requests are not authenticated, so their cost is limited: what cannot be a signature is not
//! compared at all, what cannot be a path is refused, and what all sandboxes have in common is hashed
//! once.

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use http::{Method, Uri};
use sha2::{Digest, Sha256};
use soulbox_types::Secret;

/// Linux's `PATH_MAX`.
const MAX_PATH: usize = 4096;
/// Longer than any account's name.
const MAX_USERNAME: usize = 256;
/// Of a number with 64 bits.
const MAX_EXPIRATION: usize = 20;
const SHAPE: &str = "v1_";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SignedFile {
    path: String,
    username: String,
    expiration: Option<String>,
    /// `None`: it does not have the shape of one.
    signature: Option<[u8; 32]>,
    operations: &'static [&'static str],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotSigned {
    /// Not a file, or no signature.
    Unsigned,
    TooLong(&'static str),
}

impl SignedFile {
    pub(crate) fn of(method: &Method, uri: &Uri) -> Result<Self, NotSigned> {
        let query = uri.query().filter(|_| uri.path() == "/files");
        let query = query.ok_or(NotSigned::Unsigned)?;
        let mut file = Self {
            path: String::new(),
            username: String::new(),
            expiration: None,
            signature: None,
            operations: match *method {
                Method::GET | Method::HEAD => &["read"],
                Method::POST => &["write"],
                _ => &["read", "write"], // OPTIONS: a browser asks before either
            },
        };
        let mut signed = false;
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "path" => file.path = value.into_owned(),
                "username" => file.username = value.into_owned(),
                "signature_expiration" => file.expiration = Some(value.into_owned()),
                "signature" => {
                    signed = !value.is_empty();
                    file.signature = digest(&value);
                }
                _ => {}
            }
        }
        let expiration = file.expiration.as_ref().map_or(0, String::len);
        if !signed {
            Err(NotSigned::Unsigned)
        } else if file.path.len() > MAX_PATH {
            Err(NotSigned::TooLong("the path is longer than 4096 bytes"))
        } else if file.username.len() > MAX_USERNAME {
            Err(NotSigned::TooLong("the username is longer than 256 bytes"))
        } else if expiration > MAX_EXPIRATION {
            let text = "signature_expiration is not a time in seconds";
            Err(NotSigned::TooLong(text))
        } else {
            Ok(file)
        }
    }

    /// `None` when it was made with no token at all.
    pub(crate) fn check(&self) -> Option<Check> {
        let begun = |operation: &&str| {
            Sha256::new()
                .chain_update(&self.path)
                .chain_update(":")
                .chain_update(operation)
                .chain_update(":")
                .chain_update(&self.username)
                .chain_update(":")
        };
        Some(Check {
            signature: self.signature?,
            begun: self.operations.iter().map(begun).collect(),
            end: match &self.expiration {
                Some(expiration) => format!(":{expiration}"),
                None => String::new(),
            },
        })
    }
}

/// A signature that is compared with those that tokens yield.
pub(crate) struct Check {
    signature: [u8; 32],
    /// For each operation that it may stand for, the hash up to the token.
    begun: Vec<Sha256>,
    end: String,
}

impl Check {
    pub(crate) fn made_with(&self, token: &Secret) -> bool {
        self.begun.iter().any(|begun| {
            let hash = begun.clone().chain_update(token.expose());
            let hash = hash.chain_update(&self.end).finalize();
            // In constant time.
            let differing = hash.iter().zip(&self.signature);
            differing.fold(0, |all, (a, b)| all | (a ^ b)) == 0
        })
    }
}

fn digest(signature: &str) -> Option<[u8; 32]> {
    let text = signature.strip_prefix(SHAPE)?;
    // No longer than 32 bytes can be: nothing long is decoded.
    let text = Some(text).filter(|text| text.len() == 43)?;
    // Base64 with a `+` that was pasted without encoding it.
    let text = text.replace(' ', "+");
    STANDARD_NO_PAD.decode(text).ok()?.try_into().ok()
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0";
    const SIGNATURE: &str = "signature=v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E";

    fn of(method: &Method, uri: &str) -> Result<SignedFile, NotSigned> {
        SignedFile::of(method, &uri.parse().unwrap())
    }

    fn made_with(method: &Method, query: &str, token: &str) -> bool {
        let file = of(method, &format!("/files?{query}")).unwrap();
        file.check()
            .is_some_and(|check| check.made_with(&Secret::new(token)))
    }

    #[test]
    fn the_published_example_matches() {
        let query = format!("path=hello.txt&username=user&{SIGNATURE}");
        assert!(made_with(&Method::GET, &query, TOKEN));
        assert!(made_with(&Method::OPTIONS, &query, TOKEN));
    }

    #[test]
    fn another_token_operation_user_or_expiration_does_not_match() {
        let query = format!("path=hello.txt&username=user&{SIGNATURE}");
        assert!(!made_with(&Method::GET, &query, "other"));
        assert!(!made_with(&Method::POST, &query, TOKEN));
        let query = format!("path=hello.txt&username=root&{SIGNATURE}");
        assert!(!made_with(&Method::GET, &query, TOKEN));
        let query = format!("path=hello.txt&username=user&signature_expiration=9&{SIGNATURE}");
        assert!(!made_with(&Method::GET, &query, TOKEN));
    }

    /// `printf 'a/b:write:::1700000000'`, with the token between the last two colons.
    #[test]
    fn an_expiration_is_part_of_what_is_signed() {
        let text = format!("a/b:write::{TOKEN}:1700000000");
        let signature = STANDARD_NO_PAD.encode(Sha256::digest(text));
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("path", "a/b")
            .append_pair("signature_expiration", "1700000000")
            .append_pair("signature", &format!("v1_{signature}"))
            .finish();
        assert!(made_with(&Method::POST, &query, TOKEN));
        assert!(!made_with(&Method::GET, &query, TOKEN));
    }

    #[test]
    fn only_files_with_a_signature_count() {
        for uri in ["/files", "/files?signature=", "/sandboxes?signature=v1_x"] {
            assert_eq!(of(&Method::GET, uri), Err(NotSigned::Unsigned), "{uri}");
        }
    }

    #[test]
    fn what_does_not_look_like_a_signature_is_compared_with_nothing() {
        let good = SIGNATURE.strip_prefix("signature=v1_").unwrap();
        let short = &good[1..];
        for signature in [
            "x".to_owned(),
            good.to_owned(),
            format!("v2_{good}"),
            format!("v1_{short}"),
            format!("v1_{good}="),
            format!("v1_{good}{good}"),
            format!("v1_!{short}"),
        ] {
            let file = of(
                &Method::GET,
                &format!("/files?path=x&signature={signature}"),
            );
            assert!(file.unwrap().check().is_none(), "{signature}");
        }
    }

    #[test]
    fn nothing_longer_than_a_path_is_hashed() {
        let uri = |length: usize| format!("/files?path={}&{SIGNATURE}", "x".repeat(length));
        assert!(of(&Method::GET, &uri(MAX_PATH)).is_ok());
        for uri in [
            uri(MAX_PATH + 1),
            format!("/files?username={}&{SIGNATURE}", "x".repeat(257)),
            format!("/files?signature_expiration={}&{SIGNATURE}", "1".repeat(21)),
        ] {
            let file = of(&Method::OPTIONS, &uri);
            assert!(matches!(file, Err(NotSigned::TooLong(_))), "{file:?}");
        }
    }
}
