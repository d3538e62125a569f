use http::Method;
use serde_json::json;

use super::{CALL_LIMIT, CREATE_LIMIT, Client, json, parse, segment};
use crate::{
    Result,
    model::{CreateSandbox, ListedSandbox, Sandbox, SandboxDetail},
};

impl Client {
    /// Returns when the sandbox answers.
    pub async fn create(&self, request: &CreateSandbox) -> Result<Sandbox> {
        let what = "creating the sandbox";
        parse(
            &self
                .call(
                    Method::POST,
                    "/v2/sandboxes",
                    json(request)?,
                    what,
                    CREATE_LIMIT,
                )
                .await?,
        )
    }

    /// All pages, newest first, running and paused.
    pub async fn list(&self) -> Result<Vec<ListedSandbox>> {
        self.pages("/v2/sandboxes?limit=100", "listing the sandboxes")
            .await
    }

    /// The newest ones, running and paused, up to `limit` (at most 100).
    /// Whether there is a server, and one that we trust. It needs no key.
    pub async fn health(&self) -> Result<()> {
        let health = self.call(Method::GET, "/health", None, "health", CALL_LIMIT);
        health.await.map(drop)
    }

    pub async fn list_newest(&self, limit: u32) -> Result<Vec<ListedSandbox>> {
        let path = format!("/v2/sandboxes?limit={limit}");
        self.get(&path, "listing the sandboxes").await
    }

    pub async fn sandbox(&self, id: &str) -> Result<SandboxDetail> {
        self.get(
            &format!("/sandboxes/{}", segment(id)),
            "asking for the sandbox",
        )
        .await
    }

    /// `false`: there was no such sandbox (any more).
    pub async fn kill(&self, id: &str) -> Result<bool> {
        let path = format!("/sandboxes/{}", segment(id));
        self.delete(&path, "killing the sandbox").await
    }

    /// Moves its end to so many seconds from now, later or earlier.
    pub async fn set_timeout(&self, id: &str, seconds: u32) -> Result<()> {
        let path = format!("/sandboxes/{}/timeout", segment(id));
        let body = json(&json!({ "timeout": seconds }))?;
        self.call(Method::POST, &path, body, "setting the timeout", CALL_LIMIT)
            .await?;
        Ok(())
    }

    /// Makes sure that it runs for at least so many seconds from now; resumes it when paused.
    pub async fn connect(&self, id: &str, seconds: u32) -> Result<Sandbox> {
        let path = format!("/v2/sandboxes/{}/connect", segment(id));
        let body = json(&json!({ "timeout": seconds }))?;
        let what = "connecting to the sandbox";
        parse(
            &self
                .call(Method::POST, &path, body, what, CREATE_LIMIT)
                .await?,
        )
    }

    /// Keeps it as it is, without cpu and memory, until it is connected to again.
    pub async fn pause(&self, id: &str) -> Result<()> {
        let path = format!("/sandboxes/{}/pause", segment(id));
        let what = "pausing the sandbox";
        self.call(Method::POST, &path, None, what, CREATE_LIMIT)
            .await?;
        Ok(())
    }
}
