//! The two Connect services: which method takes and gives which message.

pub(crate) mod entry;
pub(crate) mod filesystem;
pub(crate) mod follow;
mod listing;
pub(crate) mod process;
pub(crate) mod watching;

use std::time::Duration;

use soulbox_envd_protocol::KEEPALIVE_HEADER;

use crate::{
    auth,
    connect::{Call, Code, ConnectError},
    users::{self, User},
};

impl From<users::Error> for ConnectError {
    fn from(error: users::Error) -> Self {
        Self::new(Code::Unauthenticated, error.to_string())
    }
}

impl From<crate::paths::Error> for ConnectError {
    fn from(error: crate::paths::Error) -> Self {
        Self::invalid(error.to_string())
    }
}

/// The account that this call works as.
fn user(call: &Call) -> Result<User, ConnectError> {
    Ok(call.envd.user(auth::basic_user(&call.headers).as_deref())?)
}

/// How often an idle stream says that it is alive.
fn keepalive_interval(call: &Call) -> Duration {
    const DEFAULT: u64 = 90;
    let asked = call
        .header(KEEPALIVE_HEADER)
        .and_then(|text| text.trim().parse().ok());
    Duration::from_secs(asked.filter(|seconds| *seconds > 0).unwrap_or(DEFAULT))
}
