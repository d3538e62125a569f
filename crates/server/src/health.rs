//! `/livez` and `/readyz`: whether the process is alive, and whether it can make sandboxes.

use std::{sync::Arc, time::Duration};

use axum::response::{IntoResponse, Response};
use futures_util::future::BoxFuture;
use http::StatusCode;
use soulbox_node::LocalNode;
use soulbox_store::Store;
use soulbox_types::Chain;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Longer than the database ever takes, shorter than whoever probes waits.
const STORE_LIMIT: Duration = Duration::from_secs(2);

/// One thing that must be well, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) problem: Option<String>,
}

pub(crate) type ReadyNow = Arc<dyn Fn() -> BoxFuture<'static, Vec<Check>> + Send + Sync>;

/// Of the parts of a server.
pub(crate) fn checks(store: Store, node: Arc<LocalNode>) -> ReadyNow {
    Arc::new(move || {
        let (store, node) = (store.clone(), Arc::clone(&node));
        Box::pin(async move {
            let asked = timeout(STORE_LIMIT, store.ping()).await;
            let problem = match asked {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(Chain(&error).to_string()),
                Err(_) => Some("the database does not answer".to_owned()),
            };
            let mut checks = vec![Check {
                name: "store",
                problem,
            }];
            let node = tokio::task::spawn_blocking(move || node.check_ready()).await;
            let found = node.unwrap_or_default().into_iter();
            checks.extend(found.map(|(name, result)| Check {
                name,
                problem: result.err().map(|error| Chain(&error).to_string()),
            }));
            checks
        })
    })
}

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Health {
    pub(crate) ready: Option<ReadyNow>,
    /// Cancelled as soon as the server stops.
    pub(crate) stopping: CancellationToken,
}

impl Health {
    /// The process answers: nothing else is asked. Whoever restarts it when this fails must not do
    /// so because a disk is full.
    pub(crate) fn live() -> Response {
        "ok\n".into_response()
    }

    /// 200 and `ok`, or 503; a line for each check, with what is wrong.
    pub(crate) async fn ready(&self) -> Response {
        let mut checks = vec![Check {
            name: "stopping",
            problem: self
                .stopping
                .is_cancelled()
                .then(|| "the server is stopping".to_owned()),
        }];
        if let Some(ready) = &self.ready {
            checks.extend(ready().await);
        }
        let well = checks.iter().all(|check| check.problem.is_none());
        let mut text: String = checks.iter().map(line).collect();
        text.push_str(if well { "ok\n" } else { "not ready\n" });
        let status = if well {
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        };
        (status, text).into_response()
    }
}

fn line(check: &Check) -> String {
    match &check.problem {
        None => format!("[+]{} ok\n", check.name),
        Some(problem) => format!("[-]{} failed: {problem}\n", check.name),
    }
}
