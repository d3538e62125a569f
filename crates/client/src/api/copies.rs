//! Copies of a sandbox's files: forks and snapshots.

use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::json;

use super::{CREATE_LIMIT, Client, json, parse, segment};
use crate::{
    ApiError, Error, Result,
    model::{Sandbox, Snapshot},
};

impl Client {
    /// `count` sandboxes with the files of this one, which goes on. Each succeeds or fails on its
    /// own.
    pub async fn fork(&self, id: &str, count: u32, seconds: u32) -> Result<Vec<Result<Sandbox>>> {
        #[derive(Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum Copy {
            Sandbox(Sandbox),
            Error(Refusal),
        }
        #[derive(Deserialize)]
        struct Refusal {
            code: i64,
            message: String,
            error_code: Option<String>,
        }
        let path = format!("/sandboxes/{}/fork", segment(id));
        let body = json(&json!({ "count": count, "timeout": seconds }))?;
        let what = "forking the sandbox";
        let answer = self
            .call(Method::POST, &path, body, what, CREATE_LIMIT)
            .await?;
        let copies = parse::<Vec<Copy>>(&answer)?;
        Ok(copies
            .into_iter()
            .map(|copy| match copy {
                Copy::Sandbox(sandbox) => Ok(sandbox),
                Copy::Error(refusal) => Err(Error::Api(ApiError {
                    status: u16::try_from(refusal.code)
                        .ok()
                        .and_then(|code| StatusCode::from_u16(code).ok())
                        .unwrap_or(answer.status),
                    code: refusal.code,
                    message: refusal.message,
                    error_code: refusal.error_code,
                })),
            })
            .collect())
    }

    /// Keeps the files as they are now; the sandbox goes on.
    pub async fn snapshot(&self, id: &str, name: Option<&str>) -> Result<Snapshot> {
        let path = format!("/sandboxes/{}/snapshots", segment(id));
        let what = "taking the snapshot";
        let body = match name {
            Some(name) => json(&json!({ "name": name }))?,
            None => json(&json!({}))?,
        };
        parse(
            &self
                .call(Method::POST, &path, body, what, CREATE_LIMIT)
                .await?,
        )
    }

    /// Newest first; one entry for each tag. `of`: only those of this sandbox.
    pub async fn snapshots(&self, of: Option<&str>) -> Result<Vec<Snapshot>> {
        let path = match of {
            Some(id) => format!("/snapshots?limit=100&sandboxID={}", segment(id)),
            None => "/snapshots?limit=100".to_owned(),
        };
        self.pages(&path, "listing the snapshots").await
    }
}
