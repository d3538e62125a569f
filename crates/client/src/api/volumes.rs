use http::Method;
use serde_json::json;

use super::{CREATE_LIMIT, Client, json, parse, segment};
use crate::{Result, model::Volume};

impl Client {
    pub async fn volumes(&self) -> Result<Vec<Volume>> {
        self.get("/volumes", "listing the volumes").await
    }

    pub async fn create_volume(&self, name: &str) -> Result<Volume> {
        let body = json(&json!({ "name": name }))?;
        let what = "making the volume";
        let answer = self.call(Method::POST, "/volumes", body, what, CREATE_LIMIT);
        parse(&answer.await?)
    }

    /// `false`: there was none.
    pub async fn delete_volume(&self, id: &str) -> Result<bool> {
        let path = format!("/volumes/{}", segment(id));
        self.delete(&path, "deleting the volume").await
    }
}
