use http::Method;
use serde_json::json;

use super::{CALL_LIMIT, Client, json, parse, segment};
use crate::{
    Result,
    model::{ApiKey, CreatedApiKey},
};

impl Client {
    pub async fn api_keys(&self) -> Result<Vec<ApiKey>> {
        self.get("/api-keys", "listing the API keys").await
    }

    pub async fn create_api_key(&self, name: &str) -> Result<CreatedApiKey> {
        let body = json(&json!({ "name": name }))?;
        parse(
            &self
                .call(
                    Method::POST,
                    "/api-keys",
                    body,
                    "making the API key",
                    CALL_LIMIT,
                )
                .await?,
        )
    }

    pub async fn delete_api_key(&self, id: &str) -> Result<()> {
        let path = format!("/api-keys/{}", segment(id));
        self.call(
            Method::DELETE,
            &path,
            None,
            "deleting the API key",
            CALL_LIMIT,
        )
        .await?;
        Ok(())
    }
}
