//! Requests that a client may send again without making a second sandbox.

use std::{fmt::Write, time::Duration};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use soulbox_store::{IdempotencyRecord, IdempotencyRow};
use soulbox_types::{TemplateId, TenantId, UnixMillis};

use crate::{Access, Control, Error, Result, registry::Phase};

const MAX_KEY_LENGTH: usize = 255;
const KEPT: Duration = Duration::from_hours(24);

/// A client's name for one request, and the request's digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    key: String,
    fingerprint: String,
}

impl IdempotencyKey {
    /// `request` is everything that makes it the same request.
    pub fn new(key: &str, request: &[u8]) -> Result<Self> {
        let fits = (1..=MAX_KEY_LENGTH).contains(&key.len())
            && key
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if !fits {
            return Err(Error::Invalid(
                "Idempotency-Key must be 1 to 255 characters of a-z, 0-9 and -".to_owned(),
            ));
        }
        let mut fingerprint = String::with_capacity(64);
        for byte in Sha256::digest(request) {
            write!(fingerprint, "{byte:02x}").map_err(|_| Error::Internal("out of memory"))?;
        }
        Ok(Self {
            key: key.to_owned(),
            fingerprint,
        })
    }

    pub(crate) fn record(&self, tenant: &TenantId) -> IdempotencyRecord {
        IdempotencyRecord {
            tenant: tenant.clone(),
            key: self.key.clone(),
            fingerprint: self.fingerprint.clone(),
        }
    }
}

/// The part of the answer that cannot be derived from the sandbox's id. No token: that is derived.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StoredAnswer {
    template: TemplateId,
    alias: Option<String>,
    secure: bool,
    #[serde(default)]
    private: bool,
}

impl StoredAnswer {
    pub(crate) fn of(access: &Access) -> Result<String> {
        let answer = Self {
            template: access.template.clone(),
            alias: access.alias.clone(),
            secure: access.access_token.is_some(),
            private: access.traffic_token.is_some(),
        };
        serde_json::to_string(&answer).map_err(|_| Error::Internal("the answer is not JSON"))
    }
}

/// Records older than this are forgotten.
pub(crate) fn forget_before(now: UnixMillis) -> UnixMillis {
    UnixMillis(
        now.0
            .saturating_sub(u64::try_from(KEPT.as_millis()).unwrap_or(u64::MAX)),
    )
}

impl Control {
    /// The answer to a request that was made before.
    pub(crate) fn replay(
        &self,
        record: &IdempotencyRecord,
        earlier: IdempotencyRow,
    ) -> Result<Access> {
        if earlier.fingerprint != record.fingerprint {
            return Err(Error::IdempotencyMismatch);
        }
        let Some(response) = earlier.response else {
            return match (
                self.registry.phase(&earlier.sandbox),
                self.node.get(&earlier.sandbox),
            ) {
                (Some(Phase::Running), Some(status)) => Ok(Access::from(&status)),
                (Some(_), _) => Err(Error::IdempotencyInProgress),
                (None, _) => Err(Error::IdempotencyOutcomeUnknown),
            };
        };
        let answer: StoredAnswer = serde_json::from_str(&response)
            .map_err(|_| Error::Internal("the stored answer is not readable"))?;
        Ok(Access {
            access_token: answer
                .secure
                .then(|| self.tokens.access_token(&earlier.sandbox)),
            traffic_token: answer
                .private
                .then(|| self.tokens.traffic_token(&earlier.sandbox)),
            id: earlier.sandbox,
            template: answer.template,
            alias: answer.alias,
        })
    }
}
