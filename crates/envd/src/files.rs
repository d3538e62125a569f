//! `/files`: whole files over plain HTTP.

pub(crate) mod compose;
mod disposition;
pub(crate) mod download;
mod encoding;
pub(crate) mod metadata;
mod range;
mod signature;
mod sink;
pub(crate) mod source;
pub(crate) mod threads;
pub(crate) mod upload;

use std::{path::PathBuf, rc::Rc};

use http::HeaderMap;

use crate::{
    auth::{self, Token},
    http::reply::Failure,
    paths,
    state::Envd,
    users::User,
};

/// The query of both directions.
#[derive(Debug, Default, PartialEq, Eq)]
struct Query {
    path: String,
    username: Option<String>,
    signature: Option<String>,
    expiration: Option<String>,
}

impl Query {
    fn parse(query: Option<&str>) -> Self {
        let mut found = Self::default();
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            let value = value.into_owned();
            match &*name {
                "path" => found.path = value,
                "username" => found.username = Some(value),
                "signature" => found.signature = Some(value),
                "signature_expiration" => found.expiration = Some(value),
                _ => {}
            }
        }
        found
    }

    /// The header's token or, without one, the signature of exactly this request.
    fn authorise(&self, envd: &Envd, headers: &HeaderMap, operation: &str) -> Result<(), Failure> {
        match auth::access_token(envd, headers) {
            Token::Right => Ok(()),
            Token::Wrong => Err(Failure::unauthorised(
                "access token present in header but does not match",
            )),
            Token::Missing => {
                let token = envd.settings.borrow().access_token.clone();
                let Some(token) = token else { return Ok(()) };
                signature::check(self, operation, &token, crate::time::unix_seconds())
                    .map_err(Failure::unauthorised)
            }
        }
    }

    fn user(&self, envd: &Rc<Envd>) -> Result<User, Failure> {
        Ok(envd.user(self.username.as_deref())?)
    }
}

fn resolve(envd: &Envd, path: &str, user: &User) -> Result<PathBuf, Failure> {
    Ok(paths::resolve(path, user, &envd.default_workdir())?)
}

#[cfg(test)]
mod properties;
