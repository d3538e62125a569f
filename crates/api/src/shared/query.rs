//! Query strings, read by hand: every wrong value gets an answer that names it.

use std::{convert::Infallible, str::FromStr};

use axum::extract::FromRequestParts;
use http::request::Parts;

use crate::shared::error::{ApiError, Result};

#[derive(Debug)]
pub(crate) struct Query(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for Query {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let query = parts.uri.query().unwrap_or_default();
        Ok(Self(
            form_urlencoded::parse(query.as_bytes())
                .into_owned()
                .collect(),
        ))
    }
}

impl Query {
    /// Absent and empty are the same.
    pub(crate) fn text(&self, name: &'static str) -> Option<&str> {
        self.all(name).next()
    }

    pub(crate) fn number<T: FromStr>(&self, name: &'static str) -> Result<Option<T>> {
        let bad = |_| ApiError::bad_request(format!("Invalid format for parameter {name}"));
        self.text(name)
            .map(|text| text.parse().map_err(bad))
            .transpose()
    }

    /// A comma list, or the parameter several times, or both.
    pub(crate) fn list(&self, name: &'static str) -> Vec<&str> {
        self.all(name)
            .flat_map(|text| text.split(','))
            .filter(|item| !item.is_empty())
            .collect()
    }

    fn all(&self, name: &'static str) -> impl Iterator<Item = &str> {
        let named = self
            .0
            .iter()
            .filter(move |(key, value)| key == name && !value.is_empty());
        named.map(|(_, value)| value.as_str())
    }
}
