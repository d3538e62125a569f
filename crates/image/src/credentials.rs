//! How to sign in to a registry.

use aws_lc_rs::hmac;
use serde::{Deserialize, Serialize};
use soulbox_types::Secret;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Credentials {
    Basic {
        username: String,
        password: Secret,
    },
    Aws {
        access_key_id: String,
        secret_access_key: Secret,
        region: String,
    },
    Gcp {
        service_account_json: Secret,
    },
}

impl Credentials {
    /// The same for the same credentials; reveals nothing about them without the key.
    pub(crate) fn fingerprint(&self, mac: &mut hmac::Context) {
        let parts: [&str; 4] = match self {
            Self::Basic { username, password } => ["basic", username, password.expose(), ""],
            Self::Aws {
                access_key_id,
                secret_access_key,
                region,
            } => ["aws", access_key_id, secret_access_key.expose(), region],
            Self::Gcp {
                service_account_json,
            } => ["gcp", service_account_json.expose(), "", ""],
        };
        for part in parts {
            // With their lengths: parts must not run into each other.
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part.as_bytes());
        }
    }
}
