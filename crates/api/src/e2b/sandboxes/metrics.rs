//! `GET /sandboxes/{id}/metrics` and `GET /sandboxes/metrics`.

use std::collections::BTreeMap;

use axum::{Json, extract::State};
use serde::Serialize;
use soulbox_control::Error as ControlError;
use soulbox_runtime::MetricSample;
use soulbox_types::Limits;

use crate::{
    router::App,
    shared::{
        auth::Caller,
        error::{ApiError, Result},
        path::{SandboxPath, sandbox_id},
        query::Query,
        wire::timestamp,
    },
};

const MAX_SANDBOXES: usize = 100;

/// E2B's `SandboxMetric`, and what our kernel tells besides. Sizes in bytes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metric {
    timestamp: String,
    timestamp_unix: u64,
    cpu_count: u32,
    cpu_used_pct: f64,
    mem_used: u64,
    mem_total: u64,
    mem_cache: u64,
    disk_used: u64,
    disk_total: u64,
    /// Ours: the most memory that it ever used, page cache included.
    #[serde(skip_serializing_if = "Option::is_none")]
    mem_peak: Option<u64>,
    /// Ours: how often the kernel killed something inside for lack of memory.
    oom_kills: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Many {
    sandboxes: BTreeMap<String, Metric>,
}

impl Metric {
    fn new(sample: &MetricSample, limits: &Limits) -> Self {
        let stats = &sample.stats;
        Self {
            timestamp: timestamp(sample.at),
            timestamp_unix: sample.at.0 / 1000,
            cpu_count: limits.cpu_count(),
            // Not a number is not JSON.
            cpu_used_pct: if sample.cpu_used_pct.is_finite() {
                sample.cpu_used_pct
            } else {
                0.0
            },
            // As in E2B without the page cache, which is given up when memory gets short.
            mem_used: stats.memory_bytes.saturating_sub(stats.memory_cache_bytes),
            mem_total: limits.memory_bytes(),
            mem_cache: stats.memory_cache_bytes,
            disk_used: stats.disk_used_bytes,
            disk_total: stats.disk_total_bytes,
            mem_peak: stats.memory_peak_bytes,
            oom_kills: stats.oom_kills,
        }
    }
}

/// All samples, or those between `start` and `end` (unix seconds, inclusive).
pub(crate) async fn one(
    State(app): State<App>,
    caller: Caller,
    SandboxPath(id): SandboxPath,
    query: Query,
) -> Result<Json<Vec<Metric>>> {
    let start: i64 = query.number("start")?.unwrap_or(i64::MIN);
    let end: i64 = query.number("end")?.unwrap_or(i64::MAX);
    if start > end {
        return Err(ApiError::bad_request("start must not be after end"));
    }
    let metrics = app.control.metrics(&caller.tenant, &id).await?;
    let asked = metrics.samples.iter().filter(|sample| {
        i64::try_from(sample.at.0 / 1000).is_ok_and(|second| (start..=end).contains(&second))
    });
    Ok(Json(
        asked
            .map(|sample| Metric::new(sample, &metrics.limits))
            .collect(),
    ))
}

/// The newest sample of each; sandboxes that are not there are left out.
pub(crate) async fn many(
    State(app): State<App>,
    caller: Caller,
    query: Query,
) -> Result<Json<Many>> {
    let asked = query.list("sandbox_ids");
    if !(1..=MAX_SANDBOXES).contains(&asked.len()) {
        let message = format!("sandbox_ids must name 1 to {MAX_SANDBOXES} sandboxes");
        return Err(ApiError::bad_request(message));
    }
    let mut sandboxes = BTreeMap::new();
    for text in asked {
        let id = sandbox_id(text)?;
        match app.control.metrics(&caller.tenant, &id).await {
            Ok(metrics) => {
                if let Some(last) = metrics.samples.last() {
                    sandboxes.insert(id.to_string(), Metric::new(last, &metrics.limits));
                }
            }
            Err(ControlError::SandboxNotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Json(Many { sandboxes }))
}
