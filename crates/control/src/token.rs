//! Tokens derived from the server's seed: the same after a restart, nothing to store.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use soulbox_types::{SandboxId, Secret};

use crate::{Error, Result};

pub(crate) struct TokenMaker {
    seeded: Hmac<Sha256>,
}

impl TokenMaker {
    pub(crate) fn new(seed: &Secret) -> Result<Self> {
        let bad = || Error::Internal("the seed is not hex: restore the seed file");
        let key = hex::decode(seed.expose()).map_err(|_| bad())?;
        if key.is_empty() {
            return Err(bad());
        }
        Ok(Self {
            seeded: Hmac::new_from_slice(&key).map_err(|_| bad())?,
        })
    }

    /// What clients show envd.
    pub(crate) fn access_token(&self, id: &SandboxId) -> Secret {
        self.token("", id)
    }

    /// What clients show for every other port, of a sandbox that is not public.
    pub(crate) fn traffic_token(&self, id: &SandboxId) -> Secret {
        self.token("sandbox-traffic-", id)
    }

    fn token(&self, purpose: &str, id: &SandboxId) -> Secret {
        let mut mac = self.seeded.clone();
        mac.update(purpose.as_bytes());
        mac.update(id.as_str().as_bytes());
        Secret::new(hex::encode(mac.finalize().into_bytes()))
    }
}

impl TokenMaker {
    /// What clients show to touch the files of a volume. No sandbox id looks like this.
    pub(crate) fn volume_token(&self, id: &str) -> Secret {
        Secret::new(hex::encode(self.derive(&format!("volume-{id}"))))
    }

    /// A key for another purpose.
    pub(crate) fn derive(&self, label: &str) -> [u8; 32] {
        let mut mac = self.seeded.clone();
        mac.update(label.as_bytes());
        mac.finalize().into_bytes().into()
    }
}

impl fmt::Debug for TokenMaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenMaker(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_the_hmac_of_the_id() {
        let maker = TokenMaker::new(&Secret::new("4a656665")).unwrap();
        let token = maker.access_token(&"abc".parse().unwrap());
        let expected = "7cf4ec4f741f51cb0d887013c46251d6f4175643c4f422906a1aaec688cc13e8";
        assert_eq!(token.expose(), expected);
    }

    #[test]
    fn the_two_tokens_differ_and_stay() {
        let maker = TokenMaker::new(&Secret::new("4a656665")).unwrap();
        let id = "abc".parse().unwrap();
        let again = TokenMaker::new(&Secret::new("4a656665")).unwrap();
        assert_eq!(maker.traffic_token(&id), again.traffic_token(&id));
        assert_ne!(maker.traffic_token(&id), maker.access_token(&id));
    }

    #[test]
    fn a_seed_that_is_not_hex_is_refused() {
        assert!(TokenMaker::new(&Secret::new("")).is_err());
        assert!(TokenMaker::new(&Secret::new("zz")).is_err());
    }
}
