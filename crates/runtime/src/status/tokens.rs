//! Which sandbox an access token belongs to.
//!
//! Strangers can ask this as often as they like, so an answer costs one hash, however many sandboxes
//! there are. Tokens are found by their hash: how long a look takes tells nothing of a token that is
//! nearly right.

use std::collections::HashMap;

use sha2::{Digest, Sha256};
use soulbox_types::{SandboxId, Secret};

/// Ours have 64 characters. Nothing longer is hashed.
const LONGEST: usize = 512;

type Hash = [u8; 32];

#[derive(Debug, Default)]
pub(super) struct Tokens(HashMap<Hash, SandboxId>);

impl Tokens {
    /// From one token of a sandbox to the next.
    pub(super) fn change(&mut self, id: &SandboxId, old: Option<&Secret>, new: Option<&Secret>) {
        if old == new {
            return;
        }
        if let Some(old) = old.map(hash)
            && self.0.get(&old) == Some(id)
        {
            self.0.remove(&old);
        }
        if let Some(new) = new {
            self.0.insert(hash(new), id.clone());
        }
    }

    pub(super) fn find(&self, shown: &str) -> Option<&SandboxId> {
        if shown.is_empty() || shown.len() > LONGEST {
            return None;
        }
        self.0.get(&hash(&Secret::new(shown)))
    }
}

fn hash(token: &Secret) -> Hash {
    Sha256::digest(token.expose()).into()
}
