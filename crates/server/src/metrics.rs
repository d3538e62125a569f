//! Metrics for Prometheus. All names are here and in `operations`; `text_format` is for those who do
//! not ask for OpenMetrics.

mod operations;
mod text_format;

use std::{fmt, sync::Arc, time::Duration};

use http::{Method, StatusCode};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{
        MetricType,
        counter::{ConstCounter, Counter},
        family::Family,
        gauge::ConstGauge,
        histogram::{Histogram, exponential_buckets},
        info::Info,
    },
    registry::{Registry, Unit},
};
use soulbox_net::{ByNameStats, NameStats};
use soulbox_node::{AdmissionStats, PoolStats};
use soulbox_proxy::Proxy;
use soulbox_runtime::Node;
use soulbox_types::SandboxState;

pub(crate) use operations::{Operations, OperationsNow};
pub(crate) use text_format::{TEXT_FORMAT, from_open_metrics};

use crate::{
    connections::{ConnectionLimiter, ConnectionStats},
    tls::Certificates,
};

/// Kinds of requests, few enough for a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Route {
    Proxy,
    /// `POST /sandboxes` and `POST /v2/sandboxes`.
    CreateSandbox,
    Api(&'static str),
}

impl Route {
    pub(crate) fn of_api(method: &Method, path: &str) -> Self {
        const KNOWN: [&str; 13] = [
            "broken",
            "df",
            "events",
            "prune",
            "sandboxes",
            "templates",
            "teams",
            "api-keys",
            "health",
            "snapshots",
            "volumes",
            "secrets",
            "nodes",
        ];
        let mut segments = path.split('/').filter(|segment| !segment.is_empty());
        let first = segments.next().unwrap_or_default();
        let resource = if matches!(first, "v1" | "v2" | "v3") {
            segments.next()
        } else {
            Some(first)
        };
        let resource = resource.unwrap_or_default();
        if *method == Method::POST && resource == "sandboxes" && segments.next().is_none() {
            return Self::CreateSandbox;
        }
        Self::Api(
            KNOWN
                .into_iter()
                .find(|known| *known == resource)
                .unwrap_or("other"),
        )
    }

    fn label(self) -> &'static str {
        match self {
            Self::Proxy => "proxy",
            Self::CreateSandbox => "create_sandbox",
            Self::Api(resource) => resource,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: &'static str,
    method: &'static str,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabel {
    route: &'static str,
}

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Metrics {
    registry: Arc<Registry>,
    requests: Family<RequestLabels, Counter>,
    api_seconds: Family<RouteLabel, Histogram, fn() -> Histogram>,
    creates: Family<OutcomeLabel, Counter>,
    create_seconds: Histogram,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// Network slots of the machine and DNS queries of sandboxes, for the metrics page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Slots {
    pub(crate) ready: u64,
    pub(crate) used: u64,
    pub(crate) names: NameStats,
    pub(crate) by_name: ByNameStats,
}

/// Called for each request of the page.
pub(crate) type SlotsNow = Arc<dyn Fn() -> Slots + Send + Sync>;

/// State of the warm pool and of admission.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Busy {
    pub(crate) pool: PoolStats,
    pub(crate) admission: AdmissionStats,
    pub(crate) evictions: u64,
    pub(crate) oom_kills: u64,
}

pub(crate) type BusyNow = Arc<dyn Fn() -> Busy + Send + Sync>;

impl Metrics {
    pub(crate) fn new(sources: Sources) -> Self {
        let mut registry = Registry::with_prefix("soulbox");
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "Version of the server", build);
        let requests = Family::default();
        registry.register(
            "requests",
            "Requests by route, method and status",
            requests.clone(),
        );
        let api_seconds: Family<_, _, fn() -> Histogram> = Family::new_with_constructor(histogram);
        registry.register_with_unit(
            "api_request_duration",
            "Time until the head of the answer of the REST API",
            Unit::Seconds,
            api_seconds.clone(),
        );
        let creates = Family::default();
        registry.register(
            "sandbox_creates",
            "Sandboxes asked for, by outcome",
            creates.clone(),
        );
        let create_seconds = histogram();
        registry.register_with_unit(
            "sandbox_create_duration",
            "Time until a sandbox was ready",
            Unit::Seconds,
            create_seconds.clone(),
        );
        registry.register_collector(Box::new(Live(sources)));
        Self {
            registry: Arc::new(registry),
            requests,
            api_seconds,
            creates,
            create_seconds,
        }
    }

    pub(crate) fn request(
        &self,
        route: Route,
        method: &Method,
        status: StatusCode,
        took: Duration,
    ) {
        let labels = RequestLabels {
            route: route.label(),
            method: known(method),
            status: status.as_u16(),
        };
        self.requests.get_or_create(&labels).inc();
        if route == Route::Proxy {
            return;
        }
        let label = RouteLabel {
            route: route.label(),
        };
        self.api_seconds
            .get_or_create(&label)
            .observe(took.as_secs_f64());
        if route == Route::CreateSandbox {
            let outcome = match status.as_u16() {
                200..300 => "created",
                400..500 => "refused",
                _ => "failed",
            };
            self.creates.get_or_create(&OutcomeLabel { outcome }).inc();
            if status.is_success() {
                self.create_seconds.observe(took.as_secs_f64());
            }
        }
    }

    /// The page, in the text format of OpenMetrics.
    pub(crate) fn page(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// 1 ms to 32 s.
fn histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 16))
}

/// The method comes from the client, so it cannot be a label as it is.
fn known(method: &Method) -> &'static str {
    const METHODS: [&str; 7] = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"];
    METHODS
        .into_iter()
        .find(|known| *known == method.as_str())
        .unwrap_or("other")
}

/// What is read for each request of the page.
pub(crate) struct Sources {
    pub(crate) node: Arc<dyn Node>,
    pub(crate) proxy: Proxy,
    pub(crate) connections: ConnectionLimiter,
    pub(crate) slots: Option<SlotsNow>,
    pub(crate) busy: Option<BusyNow>,
    pub(crate) operations: Option<OperationsNow>,
    pub(crate) certificates: Option<Arc<Certificates>>,
}

/// Values at the moment of the request.
struct Live(Sources);

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").finish_non_exhaustive()
    }
}

impl Collector for Live {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut states = [
            ("creating", 0),
            ("running", 0),
            ("paused", 0),
            ("destroying", 0),
        ];
        for status in self.0.node.list() {
            let index = match status.state {
                SandboxState::Creating => 0,
                SandboxState::Running => 1,
                SandboxState::Paused => 2,
                SandboxState::Destroying => 3,
            };
            states[index].1 += 1;
        }
        gauges(
            &mut encoder,
            "sandboxes",
            "Sandboxes by state",
            "state",
            &states,
        )?;
        let broken = self.0.node.broken();
        gauge(
            &mut encoder,
            "sandboxes_broken",
            "Sandboxes that are there and cannot be used (`soulbox ls --broken`)",
            signed(broken.len() as u64),
        )?;
        gauge(
            &mut encoder,
            "sandboxes_broken_disk_bytes",
            "What their disks take of the machine's",
            signed(broken.iter().map(|each| each.disk_bytes).sum()),
        )?;
        if let Some(slots) = &self.0.slots {
            let Slots {
                ready,
                used,
                names,
                by_name,
            } = slots();
            let values = [("ready", signed(ready)), ("used", signed(used))];
            gauges(
                &mut encoder,
                "network_slots",
                "Network slots: ready for the next sandboxes, or used by one (warm ones too)",
                "state",
                &values,
            )?;
            let help = "DNS queries of sandboxes";
            counter(&mut encoder, "dns_queries", help, names.asked)?;
            let help = "DNS queries of sandboxes that were delayed";
            counter(&mut encoder, "dns_queries_delayed", help, names.slowed)?;
            let help = "DNS queries of sandboxes that were dropped since too many were in flight";
            counter(&mut encoder, "dns_queries_dropped", help, names.dropped)?;
            let help = "Connections that sandboxes have by the name of a host, now";
            gauge(&mut encoder, "by_name_open", help, signed(by_name.open))?;
            let help = "Connections of sandboxes that were passed on by the name of a host";
            counter(&mut encoder, "by_name_passed", help, by_name.passed)?;
            let help = "Connections of sandboxes refused by the name of a host, or for want of one";
            counter(&mut encoder, "by_name_refused", help, by_name.refused)?;
        }
        if let Some(busy) = &self.0.busy {
            busy().encode(&mut encoder)?;
        }
        if let Some(operations) = &self.0.operations {
            operations().encode(&mut encoder)?;
        }
        if let Some(certificates) = &self.0.certificates {
            let help = "When the certificates in use end, in seconds since 1970";
            let name = "tls_certificate_expiry_timestamp_seconds";
            gauges(
                &mut encoder,
                name,
                help,
                "certificate",
                &certificates.ends(),
            )?;
            let counts = certificates.counts();
            let help = "Certificates that an ACME server gave";
            counter(&mut encoder, "acme_certificates", help, counts.issued)?;
            let help = "Tries to get a certificate from an ACME server that failed";
            counter(&mut encoder, "acme_failures", help, counts.failed)?;
        }
        self.0.connections.stats().encode(&mut encoder)?;
        let proxy = self.0.proxy.counters().snapshot();
        gauge(
            &mut encoder,
            "proxy_streams_open",
            "Streams to sandboxes, now",
            signed(proxy.open),
        )?;
        counter(
            &mut encoder,
            "proxy_refused",
            "Requests that the proxy answered itself",
            proxy.refused,
        )?;
        counter(
            &mut encoder,
            "proxy_streams_refused",
            "Requests refused since too many streams to sandboxes were open",
            proxy.streams_refused,
        )?;
        counter(
            &mut encoder,
            "proxy_bodies_throttled",
            "How often a body in tiny chunks was slowed down",
            proxy.slowed,
        )?;
        counter(
            &mut encoder,
            "proxy_streams_aborted",
            "Streams aborted since the sandbox broke off",
            proxy.cut,
        )?;
        counter(
            &mut encoder,
            "proxy_bytes_to_sandboxes",
            "Bytes sent to ports inside",
            proxy.bytes_to_sandboxes,
        )?;
        counter(
            &mut encoder,
            "proxy_bytes_from_sandboxes",
            "Bytes received from ports inside",
            proxy.bytes_from_sandboxes,
        )?;
        if let Some(memory) = resident_bytes() {
            gauge(
                &mut encoder,
                "process_resident_memory_bytes",
                "Memory of the server",
                memory,
            )?;
        }
        if let Some(files) = open_files() {
            gauge(
                &mut encoder,
                "process_open_fds",
                "Open file descriptors of the server",
                files,
            )?;
        }
        Ok(())
    }
}

impl ConnectionStats {
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let states = [
            ("new", signed(self.new as u64)),
            ("idle", signed(self.idle as u64)),
            ("busy", signed(self.busy as u64)),
            ("stalled", signed(self.stalled as u64)),
        ];
        let help = "Connections of clients, by state";
        gauges(encoder, "connections_open", help, "state", &states)?;
        let closed = [
            // Idle ones closed for new ones, and new ones when none was idle.
            ("evicted", self.evicted),
            ("full", self.refused),
            ("no_request", self.no_request),
        ];
        let help = "Connections of clients that the server closed, by reason";
        let mut metric =
            encoder.encode_descriptor("connections_closed", help, None, MetricType::Counter)?;
        for (reason, count) in closed {
            ConstCounter::new(count).encode(metric.encode_family(&[("reason", reason)])?)?;
        }
        Ok(())
    }
}

impl Busy {
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Self {
            pool,
            admission,
            evictions,
            oom_kills,
        } = self;
        let help = "Sandboxes that were ended since they held memory outside of their limit";
        counter(encoder, "sandboxes_evicted", help, *evictions)?;
        let help = "Processes in sandboxes that the kernel killed for lack of memory";
        counter(encoder, "oom_kills", help, *oom_kills)?;
        let members = [
            ("ready", signed(pool.ready as u64)),
            ("making", signed(pool.making as u64)),
        ];
        let help = "Sandboxes that wait for a user";
        gauges(encoder, "warm_sandboxes", help, "state", &members)?;
        let help = "Creates that a waiting sandbox was found for, or one that was being made";
        counter(encoder, "warm_hits", help, pool.hits)?;
        let help = "Creates that none was found for";
        counter(encoder, "warm_misses", help, pool.misses)?;
        let help = "Creates that wait for capacity or for a start slot, now";
        gauge(
            encoder,
            "admission_waiting",
            help,
            signed(admission.waiting),
        )?;
        let help = "Sandboxes whose processes are being started, now";
        gauge(
            encoder,
            "admission_starting",
            help,
            signed(admission.starting),
        )?;
        let help = "Creates refused, by the resource that was short";
        let mut metric =
            encoder.encode_descriptor("admission_refused", help, None, MetricType::Counter)?;
        for (resource, refused) in &admission.refused {
            let labels = [("resource", resource.as_str())];
            ConstCounter::new(*refused).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

fn gauges(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    label: &'static str,
    values: &[(&'static str, i64)],
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (value_label, value) in values {
        let labels = [(label, *value_label)];
        ConstGauge::new(*value).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: i64) -> fmt::Result {
    let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    ConstGauge::new(value).encode(metric)
}

fn counter(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    ConstCounter::new(value).encode(metric)
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn resident_bytes() -> Option<i64> {
    let status = fs_err::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: i64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib * 1024)
}

fn open_files() -> Option<i64> {
    i64::try_from(fs_err::read_dir("/proc/self/fd").ok()?.count()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_have_few_labels() {
        let label = |method: Method, path: &str| Route::of_api(&method, path).label();
        assert_eq!(label(Method::POST, "/sandboxes"), "create_sandbox");
        assert_eq!(label(Method::POST, "/v2/sandboxes"), "create_sandbox");
        assert_eq!(label(Method::GET, "/v2/sandboxes"), "sandboxes");
        assert_eq!(label(Method::POST, "/sandboxes/iabc/timeout"), "sandboxes");
        assert_eq!(label(Method::GET, "/../../etc/passwd"), "other");
        assert_eq!(label(Method::GET, "/"), "other");
        assert_eq!(known(&Method::from_bytes(b"BREW").unwrap()), "other");
    }
}
