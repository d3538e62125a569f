//! The tiers of one machine.

use std::{collections::BTreeMap, sync::Arc};

use soulbox_types::Tier;

use crate::{Error, Result, Runtime};

/// One runtime for each tier that works here, and why the others do not.
#[derive(Debug, Clone, Default)]
pub struct Runtimes {
    present: BTreeMap<Tier, Arc<dyn Runtime>>,
    absent: BTreeMap<Tier, String>,
}

impl Runtimes {
    /// In the place of one of the same tier.
    #[must_use]
    pub fn with(mut self, runtime: Arc<dyn Runtime>) -> Self {
        let tier = runtime.tier();
        self.absent.remove(&tier);
        self.present.insert(tier, runtime);
        self
    }

    /// `reason` is for people: what is missing, and what to do about it.
    #[must_use]
    pub fn without(mut self, tier: Tier, reason: impl Into<String>) -> Self {
        self.present.remove(&tier);
        self.absent.insert(tier, reason.into());
        self
    }

    /// Exactly this tier: a weaker one is not what was asked for, and a stronger one behaves
    /// differently.
    pub fn get(&self, tier: Tier) -> Result<&Arc<dyn Runtime>> {
        self.present
            .get(&tier)
            .ok_or_else(|| Error::TierUnavailable {
                tier,
                reason: match self.absent.get(&tier) {
                    Some(reason) => reason.clone(),
                    None => "this version of the server does not have it".to_owned(),
                },
            })
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<dyn Runtime>> {
        self.present.values()
    }
}

impl<R: Runtime + 'static> From<Arc<R>> for Runtimes {
    fn from(runtime: Arc<R>) -> Self {
        Self::default().with(runtime)
    }
}

impl From<Arc<dyn Runtime>> for Runtimes {
    fn from(runtime: Arc<dyn Runtime>) -> Self {
        Self::default().with(runtime)
    }
}
