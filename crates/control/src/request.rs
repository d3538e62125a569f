//! What a tenant asks for, and whether it can be had.

use std::{collections::BTreeMap, time::Duration};

use soulbox_types::{
    INSTANCE_TYPES, Lifecycle, Limits, NetworkPolicy, OnTimeout, PauseMode, Tier,
    limits::{MAX_CPUS, MAX_DISK_MIB, MAX_MEMORY_MIB, MIN_DISK_MIB, MIN_MEMORY_MIB},
};

use crate::{Error, IdempotencyKey, Result, Wait};

/// Keys and values together, for metadata and for the environment each. Both travel with every
/// answer or every process.
const MAX_MAP_BYTES: usize = 64 * 1024;
const MAX_MAP_ENTRIES: usize = 1024;

#[derive(Debug, Clone)]
pub struct CreateRequest {
    /// An id or a name.
    pub template: String,
    /// `None`: the template's, the tenant's or the server's.
    pub tier: Option<Tier>,
    /// Seconds, as the client wrote them.
    pub timeout: i64,
    pub metadata: BTreeMap<String, String>,
    pub env: BTreeMap<String, String>,
    /// Whether envd asks for a token.
    pub secure: bool,
    pub network: NetworkPolicy,
    pub lifecycle: LifecycleRequest,
    pub resources: Resources,
    pub volume_mounts: Vec<MountRequest>,
    pub idempotency: Option<IdempotencyKey>,
    /// For a template of the server's own that has to be built first.
    pub wait: Wait,
}

/// A volume, by its name, and where it shall be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountRequest {
    pub name: String,
    pub path: String,
}

/// What happens at the timeout and afterwards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LifecycleRequest {
    pub on_timeout: OnTimeout,
    /// Traffic wakes it when it is paused.
    pub auto_resume: bool,
}

impl LifecycleRequest {
    fn check(self) -> Result<()> {
        if self.auto_resume && self.on_timeout == OnTimeout::Pause(PauseMode::Filesystem) {
            // The request that wakes it would find nothing that answers.
            return invalid(
                "a sandbox that keeps only its files at the timeout (autoPauseMemory: false) \
                 cannot be woken by traffic (autoResume)"
                    .to_owned(),
            );
        }
        Ok(())
    }

    pub(crate) fn with_timeout(self, lifetime: Duration) -> Lifecycle {
        Lifecycle {
            on_timeout: self.on_timeout,
            auto_resume: self.auto_resume,
            timeout_seconds: lifetime.as_secs(),
        }
    }
}

/// What is absent comes from the template.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Resources {
    pub cpu_count: Option<u32>,
    pub memory_mib: Option<u32>,
    pub disk_mib: Option<u32>,
    /// Of an instance type: between the figures and the template.
    pub preset: Option<Limits>,
}

impl CreateRequest {
    pub(crate) fn check(&self) -> Result<()> {
        check_size("metadata", &self.metadata)?;
        check_size("envVars", &self.env)?;
        for (name, value) in &self.env {
            if name.is_empty() || name.contains(['=', '\0']) {
                return invalid(format!(
                    "envVars: {name:?} cannot name an environment variable: it must not be empty \
                     or contain '=' or NUL"
                ));
            }
            if value.contains('\0') {
                return invalid(format!("envVars: the value of {name:?} contains NUL"));
            }
        }
        self.lifecycle.check()?;
        if !self.network.is_public() && !self.secure {
            return invalid("network.allowPublicTraffic: false needs secure: true".to_owned());
        }
        crate::network::check(&self.network)?;
        self.resources.check()
    }
}

impl Resources {
    fn check(&self) -> Result<()> {
        check_range("cpuCount", self.cpu_count, 1, MAX_CPUS)?;
        check_range("memoryMB", self.memory_mib, MIN_MEMORY_MIB, MAX_MEMORY_MIB)?;
        check_range("diskSizeMB", self.disk_mib, MIN_DISK_MIB, MAX_DISK_MIB)
    }

    /// `name` is that of an instance type.
    pub fn with_instance_type(self, name: Option<&str>) -> Result<Self> {
        let Some(name) = name else { return Ok(self) };
        let Some(preset) = Limits::of_instance_type(name) else {
            let known = INSTANCE_TYPES.map(|(name, _)| name).join(", ");
            return invalid(format!("instanceType {name:?} is none of {known}"));
        };
        Ok(Self {
            preset: Some(preset),
            ..self
        })
    }

    pub(crate) fn over(self, template: Limits, defaults: Limits) -> Limits {
        let template = self.preset.unwrap_or(template);
        Limits {
            cpu_millis: self
                .cpu_count
                .map_or(template.cpu_millis, |cpus| cpus * 1000),
            memory_mib: self.memory_mib.unwrap_or(template.memory_mib),
            disk_mib: self.disk_mib.unwrap_or(template.disk_mib),
            pids: self.preset.unwrap_or(defaults).pids,
        }
    }
}

/// The time for which a new sandbox may live.
pub(crate) fn lifetime(seconds: i64, max: Duration) -> Result<Duration> {
    if seconds <= 0 {
        return invalid("Timeout must be greater than 0".to_owned());
    }
    within_max(seconds, max)
}

/// The same for one that lives already: what is not positive asks for nothing.
pub(crate) fn extension(seconds: i64, max: Duration) -> Result<Duration> {
    within_max(seconds.max(0), max)
}

fn within_max(seconds: i64, max: Duration) -> Result<Duration> {
    let wanted = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
    if wanted > max {
        return invalid(format!("Timeout cannot be greater than {}", spoken(max)));
    }
    Ok(wanted)
}

fn spoken(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        3600.. if seconds.is_multiple_of(3600) => format!("{} hours", seconds / 3600),
        _ => format!("{seconds} seconds"),
    }
}

fn check_size(what: &str, map: &BTreeMap<String, String>) -> Result<()> {
    let bytes: usize = map.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > MAX_MAP_BYTES || map.len() > MAX_MAP_ENTRIES {
        return invalid(format!(
            "{what} is too large: at most {MAX_MAP_ENTRIES} entries of together \
             {MAX_MAP_BYTES} bytes"
        ));
    }
    Ok(())
}

fn check_range(what: &str, value: Option<u32>, low: u32, high: u32) -> Result<()> {
    match value {
        Some(value) if !(low..=high).contains(&value) => {
            invalid(format!("{what} must be between {low} and {high}"))
        }
        _ => Ok(()),
    }
}

fn invalid<T>(message: String) -> Result<T> {
    Err(Error::Invalid(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    fn message<T: std::fmt::Debug>(result: Result<T>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn a_lifetime_is_positive_and_at_most_the_maximum() {
        assert_eq!(lifetime(86_400, DAY).unwrap(), DAY);
        assert_eq!(message(lifetime(0, DAY)), "Timeout must be greater than 0");
        assert_eq!(
            message(lifetime(i64::MIN, DAY)),
            "Timeout must be greater than 0"
        );
        assert_eq!(
            message(lifetime(86_401, DAY)),
            "Timeout cannot be greater than 24 hours"
        );
        assert_eq!(
            message(lifetime(i64::MAX, DAY)),
            "Timeout cannot be greater than 24 hours"
        );
        assert_eq!(extension(-5, DAY).unwrap(), Duration::ZERO);
    }

    #[test]
    fn a_maximum_that_is_not_in_hours_is_told_in_seconds() {
        let odd = Duration::from_secs(90);
        assert_eq!(
            message(lifetime(91, odd)),
            "Timeout cannot be greater than 90 seconds"
        );
    }

    #[test]
    fn resources_come_from_the_request_then_the_template() {
        let template = Limits {
            cpu_millis: 500,
            memory_mib: 256,
            disk_mib: 1024,
            pids: 9,
        };
        let request = Resources {
            cpu_count: Some(4),
            memory_mib: None,
            disk_mib: Some(99),
            preset: None,
        };
        let expected = Limits {
            cpu_millis: 4000,
            memory_mib: 256,
            disk_mib: 99,
            ..Limits::default()
        };
        assert_eq!(request.over(template, Limits::default()), expected);
        let absurd = Resources {
            memory_mib: Some(u32::MAX),
            ..Resources::default()
        };
        assert!(absurd.check().is_err());
    }
}
