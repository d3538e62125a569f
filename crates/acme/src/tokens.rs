use std::{collections::HashMap, sync::Arc};

use parking_lot::RwLock;

/// What is under `/.well-known/acme-challenge/`, while an order is on its way. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Tokens(Arc<RwLock<HashMap<String, String>>>);

impl Tokens {
    pub const PATH: &str = "/.well-known/acme-challenge/";

    /// The answer for a path, if an order waits for it.
    pub fn answer(&self, path: &str) -> Option<String> {
        let token = path.strip_prefix(Self::PATH)?;
        self.0.read().get(token).cloned()
    }

    pub(crate) fn add(&self, token: &str, answer: &str) {
        self.0.write().insert(token.to_owned(), answer.to_owned());
    }

    pub(crate) fn remove(&self, token: &str) {
        self.0.write().remove(token);
    }
}
