use std::collections::BTreeMap;

use http::Method;
use serde_json::json;
use soulbox_types::Secret;

use super::{CALL_LIMIT, Client, json, parse, segment};
use crate::{Result, model::StoredSecret};

impl Client {
    /// Without their values, which nobody is told.
    pub async fn secrets(&self) -> Result<Vec<StoredSecret>> {
        self.pages("/secrets?limit=100", "listing the secrets")
            .await
    }

    pub async fn create_secret(
        &self,
        name: &str,
        value: &Secret,
        metadata: &BTreeMap<String, String>,
    ) -> Result<StoredSecret> {
        let body = json!({ "name": name, "value": value.expose(), "metadata": metadata });
        let what = "keeping the secret";
        let answer = self.call(Method::POST, "/secrets", json(&body)?, what, CALL_LIMIT);
        parse(&answer.await?)
    }

    /// Another value for one that is there.
    pub async fn update_secret(&self, name: &str, value: &Secret) -> Result<StoredSecret> {
        let path = format!("/secrets/{}", segment(name));
        let body = json(&json!({ "value": value.expose() }))?;
        let what = "changing the secret";
        let answer = self.call(Method::POST, &path, body, what, CALL_LIMIT);
        parse(&answer.await?)
    }

    /// By id or name. `false`: there was none.
    pub async fn delete_secret(&self, name: &str) -> Result<bool> {
        let path = format!("/secrets/{}", segment(name));
        self.delete(&path, "deleting the secret").await
    }
}
