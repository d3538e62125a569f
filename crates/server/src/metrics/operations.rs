//! What operators watch besides requests: disk, memory, builds, traffic, certificates, backups.

use std::{fmt, sync::Arc};

use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Unit,
};
use soulbox_control::BuildStats;
use soulbox_net::{Counted, Traffic};
use soulbox_node::{DiskStats, Level, NodeStats, Resource};

use super::{gauge, gauges, signed};
use crate::sampled::Sampled;

/// At the moment of a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Operations {
    pub(crate) node: NodeStats,
    pub(crate) builds: BuildStats,
    pub(crate) snapshots: u64,
    pub(crate) sampled: Sampled,
}

pub(crate) type OperationsNow = Arc<dyn Fn() -> Operations + Send + Sync>;

impl Operations {
    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let NodeStats {
            disk,
            levels,
            stuck_ends,
        } = &self.node;
        if let Some(disk) = disk {
            encode_disk(encoder, disk)?;
        }
        if !self.sampled.disk.is_empty() {
            let kinds = self.sampled.disk.iter();
            let kinds: Vec<_> = kinds.map(|(kind, bytes)| (*kind, signed(*bytes))).collect();
            let help = "What each kind of thing takes of the data folder's disk";
            gauges(encoder, "disk_used_bytes", help, "kind", &kinds)?;
        }
        encode_levels(encoder, levels)?;
        let help =
            "Sandboxes that were killed and that the kernel does not end: from 4 on none is made";
        gauge(encoder, "sandbox_ends_stuck", help, signed(*stuck_ends))?;
        gauge(encoder, "snapshots", "Snapshots", signed(self.snapshots))?;
        encode_builds(encoder, &self.builds)?;
        if let Some(traffic) = &self.sampled.traffic {
            encode_traffic(encoder, traffic)?;
        }
        if let Some(last) = &self.sampled.last_backup {
            let help = "When the last whole backup of the data folder was taken, in seconds since the epoch";
            let seconds = signed(last.at.0 / 1000);
            gauge(
                encoder,
                "backup_last_success_timestamp_seconds",
                help,
                seconds,
            )?;
            let help = "What the last whole backup holds";
            gauge(encoder, "backup_last_size_bytes", help, signed(last.bytes))?;
        }
        Ok(())
    }
}

fn encode_disk(encoder: &mut DescriptorEncoder<'_>, disk: &DiskStats) -> fmt::Result {
    let help = "Size of the data folder's disk";
    gauge(encoder, "disk_size_bytes", help, signed(disk.total))?;
    let help = "Free on the data folder's disk";
    gauge(encoder, "disk_free_bytes", help, signed(disk.free))?;
    let help = "Kept free on the data folder's disk: below it nothing is made, and sandboxes that fill it are paused";
    gauge(encoder, "disk_reserve_bytes", help, signed(disk.reserve))?;
    if let Some(files) = disk.free_files {
        let help = "Files (inodes) that the data folder's disk can still hold";
        gauge(encoder, "disk_free_files", help, signed(files))?;
    }
    Ok(())
}

/// Of what the machine has a number of. Memory in bytes, all others in pieces.
fn encode_levels(encoder: &mut DescriptorEncoder<'_>, levels: &[Level]) -> fmt::Result {
    let of = |memory: bool| {
        let levels = levels.iter();
        levels.filter(move |level| (level.resource == Resource::Memory) == memory)
    };
    let help = "Memory that is used, by whose it is, as admission control sees it";
    let mut metric =
        encoder.encode_descriptor("memory_used_bytes", help, None, MetricType::Gauge)?;
    for level in of(true) {
        let labels = [("scope", scope(level))];
        ConstGauge::new(signed(level.used)).encode(metric.encode_family(&labels)?)?;
    }
    let help = "Memory up to which sandboxes are made, reserves taken off";
    let mut metric =
        encoder.encode_descriptor("memory_limit_bytes", help, None, MetricType::Gauge)?;
    for level in of(true) {
        let labels = [("scope", scope(level))];
        ConstGauge::new(signed(level.bound)).encode(metric.encode_family(&labels)?)?;
    }
    let help = "What is used of the machine's other resources, as admission control sees it";
    let mut metric = encoder.encode_descriptor("resource_used", help, None, MetricType::Gauge)?;
    for level in of(false) {
        let labels = [
            ("resource", level.resource.as_str()),
            ("scope", scope(level)),
        ];
        ConstGauge::new(signed(level.used)).encode(metric.encode_family(&labels)?)?;
    }
    let help = "Up to which sandboxes are made, reserves taken off";
    let mut metric = encoder.encode_descriptor("resource_limit", help, None, MetricType::Gauge)?;
    for level in of(false) {
        let labels = [
            ("resource", level.resource.as_str()),
            ("scope", scope(level)),
        ];
        ConstGauge::new(signed(level.bound)).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

/// `of the machine` is `machine`.
fn scope(level: &Level) -> &'static str {
    let words = level.whose.trim_start_matches("of ");
    words.trim_start_matches("the ").trim_start_matches("all ")
}

fn encode_builds(encoder: &mut DescriptorEncoder<'_>, builds: &BuildStats) -> fmt::Result {
    let states = [
        ("running", signed(builds.running)),
        ("queued", signed(builds.waiting)),
    ];
    let help = "Builds of templates that are under way, by state";
    gauges(encoder, "builds", help, "state", &states)?;
    let outcomes = [
        ("ready", builds.ready),
        ("failed", builds.failed),
        ("cancelled", builds.cancelled),
    ];
    let help = "Builds of templates that ended, by outcome";
    let mut metric = encoder.encode_descriptor("builds_ended", help, None, MetricType::Counter)?;
    for (outcome, ended) in outcomes {
        let labels = [("outcome", outcome)];
        ConstCounter::new(ended.count).encode(metric.encode_family(&labels)?)?;
    }
    let help = "Time that builds of templates took, the queue included, by outcome";
    let seconds = Some(&Unit::Seconds);
    let mut metric =
        encoder.encode_descriptor("builds_duration", help, seconds, MetricType::Counter)?;
    for (outcome, ended) in outcomes {
        let labels = [("outcome", outcome)];
        #[expect(clippy::cast_precision_loss, reason = "a metric")]
        let seconds = ended.millis as f64 / 1000.0;
        ConstCounter::new(seconds).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

fn encode_traffic(encoder: &mut DescriptorEncoder<'_>, traffic: &Traffic) -> fmt::Result {
    let all = [
        ("sent", traffic.sent),
        ("received", traffic.received),
        ("refused", traffic.refused),
        ("dropped", traffic.dropped),
    ];
    let help = "Packets between sandboxes and other machines (sent, received), and those that the firewall refused or dropped";
    encode_counted(encoder, "network_packets", help, &all, |counted| {
        counted.packets
    })?;
    let help = "Bytes of these packets";
    encode_counted(encoder, "network_bytes", help, &all, |counted| {
        counted.bytes
    })
}

fn encode_counted(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    all: &[(&'static str, Counted)],
    value: fn(&Counted) -> u64,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (kind, counted) in all {
        let labels = [("kind", *kind)];
        ConstCounter::new(value(counted)).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}
