//! Signed file URLs on a shared host carry neither host nor headers that name the sandbox. The
//! sandbox is then the one whose token yields the signature: one hash per running sandbox. Whether
//! the URL is still valid is for envd to say.

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use http::{Method, Uri};
use sha2::{Digest, Sha256};
use soulbox_types::Secret;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SignedFile {
    path: String,
    username: String,
    expiration: Option<String>,
    signature: String,
    operations: &'static [&'static str],
}

impl SignedFile {
    pub(crate) fn of(method: &Method, uri: &Uri) -> Option<Self> {
        if uri.path() != "/files" {
            return None;
        }
        let mut file = Self {
            path: String::new(),
            username: String::new(),
            expiration: None,
            signature: String::new(),
            operations: match *method {
                Method::GET | Method::HEAD => &["read"],
                Method::POST => &["write"],
                _ => &["read", "write"], // OPTIONS: a browser asks before either
            },
        };
        for (name, value) in form_urlencoded::parse(uri.query()?.as_bytes()) {
            match &*name {
                "path" => file.path = value.into_owned(),
                "username" => file.username = value.into_owned(),
                "signature_expiration" => file.expiration = Some(value.into_owned()),
                // Base64 with a `+` that was pasted without encoding it.
                "signature" => file.signature = value.replace(' ', "+"),
                _ => {}
            }
        }
        (!file.signature.is_empty()).then_some(file)
    }

    pub(crate) fn made_with(&self, token: &Secret) -> bool {
        self.operations
            .iter()
            .any(|operation| self.signed_for(operation, token).matches(&self.signature))
    }

    fn signed_for(&self, operation: &str, token: &Secret) -> Secret {
        let mut text = format!(
            "{}:{operation}:{}:{}",
            self.path,
            self.username,
            token.expose()
        );
        if let Some(expiration) = &self.expiration {
            text.push(':');
            text.push_str(expiration);
        }
        Secret::new(format!(
            "v1_{}",
            STANDARD_NO_PAD.encode(Sha256::digest(text.as_bytes()))
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0";

    fn file(method: &Method, query: &str) -> SignedFile {
        SignedFile::of(method, &format!("/files?{query}").parse().unwrap()).unwrap()
    }

    #[test]
    fn the_published_example_matches() {
        let query =
            "path=hello.txt&username=user&signature=v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E";
        assert!(file(&Method::GET, query).made_with(&Secret::new(TOKEN)));
        assert!(file(&Method::OPTIONS, query).made_with(&Secret::new(TOKEN)));
    }

    #[test]
    fn another_token_operation_user_or_expiration_does_not_match() {
        let signature = "signature=v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E";
        let query = format!("path=hello.txt&username=user&{signature}");
        assert!(!file(&Method::GET, &query).made_with(&Secret::new("other")));
        assert!(!file(&Method::POST, &query).made_with(&Secret::new(TOKEN)));
        let query = format!("path=hello.txt&username=root&{signature}");
        assert!(!file(&Method::GET, &query).made_with(&Secret::new(TOKEN)));
        let query = format!("path=hello.txt&username=user&signature_expiration=9&{signature}");
        assert!(!file(&Method::GET, &query).made_with(&Secret::new(TOKEN)));
    }

    #[test]
    fn only_files_with_a_signature_count() {
        let of = |uri: &str| SignedFile::of(&Method::GET, &uri.parse().unwrap());
        assert_eq!(of("/files"), None);
        assert_eq!(of("/files?signature="), None);
        assert_eq!(of("/sandboxes?signature=v1_x"), None);
    }
}
