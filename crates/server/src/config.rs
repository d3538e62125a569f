//! Options of the server. One struct holds an option's flag, its variable and its key in the file;
//! a flag wins over the environment, that over the file, that over the default.

mod acme;
mod admission;
mod endpoint;
mod file;
mod machine;
mod mirror;
mod names;
mod span;

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use clap::ValueEnum;
use serde::Deserialize;
use soulbox_net::Ipv4Net;
use soulbox_types::Limits;

pub use acme::{AcmeChallenge, AcmeConfig};
pub use admission::Admission;
pub use endpoint::Endpoint;
pub use mirror::Mirror;
pub use names::NameServer;
use span::Span;

/// Arguments of `soulbox serve`.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ServeArgs {
    /// A TOML file with any of the options below, named as here without the dashes in front
    #[arg(long, env = "SOULBOX_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub settings: Settings,
}

/// Every option, from one source. What is not set is `None`.
#[derive(Debug, Clone, Default, PartialEq, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Settings {
    /// Where API and sandbox traffic are served without encryption [default: 127.0.0.1:3000]
    #[arg(long, env = "SOULBOX_LISTEN", value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// The same with TLS, or `off` [default: 127.0.0.1:3443]
    #[arg(long, env = "SOULBOX_HTTPS", value_name = "ADDRESS")]
    pub https: Option<Endpoint>,
    /// Prometheus metrics and health, or `off` [default: 127.0.0.1:3001]
    #[arg(long, env = "SOULBOX_ADMIN", value_name = "ADDRESS")]
    pub admin: Option<Endpoint>,
    /// Everything that the server keeps [default: /var/lib/soulbox]
    #[arg(long, env = "SOULBOX_DATA_DIR", value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Sandboxes are `<port>-<id>.<domain>` [default: sbx.localhost]
    #[arg(long, env = "SOULBOX_DOMAIN", value_name = "NAME")]
    pub domain: Option<String>,
    /// Your own certificate chain (PEM) for the domain and its wildcard, instead of the local CA
    #[arg(long, env = "SOULBOX_TLS_CERT", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// The private key (PEM) of --tls-cert
    #[arg(long, env = "SOULBOX_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Get a certificate for --domain from an ACME server, and with it agree to its terms: `dns-01` for
    /// the domain and its wildcard, `http-01` for api.DOMAIN and sandbox.DOMAIN alone [default: the
    /// local CA]
    #[arg(long, env = "SOULBOX_ACME_CHALLENGE", value_name = "CHALLENGE")]
    pub acme_challenge: Option<AcmeChallenge>,
    /// Told to the ACME server, for its warnings
    #[arg(long, env = "SOULBOX_ACME_EMAIL", value_name = "ADDRESS")]
    pub acme_email: Option<String>,
    /// The ACME server's directory [default: that of Let's Encrypt]
    #[arg(long, env = "SOULBOX_ACME_DIRECTORY", value_name = "URL")]
    pub acme_directory: Option<String>,
    /// A PEM file with the authority of a private ACME server itself
    #[arg(long, env = "SOULBOX_ACME_CA", value_name = "FILE")]
    pub acme_ca: Option<PathBuf>,
    /// For dns-01: called as `PROGRAM present|cleanup NAME VALUE`, adds or removes that TXT record and
    /// ends with 0 when the name servers have it
    #[arg(long, env = "SOULBOX_ACME_DNS_HOOK", value_name = "PROGRAM")]
    pub acme_dns_hook: Option<PathBuf>,
    /// For http-01: where its questions are answered and everything else is sent to HTTPS, or `off`
    /// when port 80 leads to --listen [default: 0.0.0.0:80]
    #[arg(long, env = "SOULBOX_ACME_HTTP", value_name = "ADDRESS")]
    pub acme_http: Option<Endpoint>,
    /// Where questions for the domain's names are answered (DNS), or `off` [default: 127.0.83.66:53
    /// where that is free]
    #[arg(long, env = "SOULBOX_DNS", value_name = "ADDRESS")]
    pub dns: Option<Endpoint>,
    /// The answer to them [default: the address of --https]
    #[arg(long, env = "SOULBOX_DNS_ANSWER", value_name = "ADDRESS")]
    pub dns_answer: Option<IpAddr>,
    /// Addresses for sandboxes, such as 10.213.0.0/16 [default: the first range that is free]
    #[arg(long, env = "SOULBOX_NETWORK_RANGE", value_name = "CIDR")]
    pub network_range: Option<Ipv4Net>,
    /// A private range that sandboxes may reach; repeatable
    #[arg(
        long,
        env = "SOULBOX_OPEN_RANGE",
        value_name = "CIDR",
        value_delimiter = ','
    )]
    pub open_range: Option<Vec<Ipv4Net>>,
    /// Network slots kept ready for the next sandboxes [default: 8]
    #[arg(long, env = "SOULBOX_POOL", value_name = "N")]
    pub pool: Option<usize>,
    /// Sandboxes kept started and ready, at most, for templates that are in demand; 0 for none
    /// [default: 8]
    #[arg(long, env = "SOULBOX_WARM", value_name = "N")]
    pub warm: Option<usize>,
    /// Templates built at a time [default: the number of cpus]
    #[arg(long, env = "SOULBOX_PARALLEL_BUILDS", value_name = "N")]
    pub parallel_builds: Option<usize>,
    /// A built-in template to build at the start, so that its first sandbox need not wait for it,
    /// such as code-interpreter-v1; repeatable
    #[arg(
        long,
        env = "SOULBOX_PREBUILD",
        value_name = "NAME",
        value_delimiter = ','
    )]
    pub prebuild: Option<Vec<String>>,
    /// How long a create waits for the first build of a built-in template: for clients that do not
    /// say (`Prefer: wait=SECONDS`), and the most for those that do [default: a little less than the
    /// client waits itself]
    #[arg(long, env = "SOULBOX_BUILD_WAIT", value_name = "TIME")]
    pub build_wait: Option<Span>,
    /// A folder with definitions of more built-in templates, in the form of templates/ in the source
    #[arg(long, env = "SOULBOX_DEFINITIONS", value_name = "DIR")]
    pub definitions: Option<PathBuf>,
    /// A registry, as HOST or HOST:PORT, that may be at a private address and without TLS; repeatable
    #[arg(
        long,
        env = "SOULBOX_REGISTRY_ALLOW",
        value_name = "HOST",
        value_delimiter = ','
    )]
    pub registry_allow: Option<Vec<String>>,
    /// Where to get the images of a registry instead, as docker.io=http://127.0.0.1:5000; repeatable
    #[arg(
        long,
        env = "SOULBOX_REGISTRY_MIRROR",
        value_name = "NAME=URL",
        value_delimiter = ','
    )]
    pub registry_mirror: Option<Vec<Mirror>>,
    /// How many sandboxes may run at a time [default: 1000]
    #[arg(long, env = "SOULBOX_MAX_SANDBOXES", value_name = "N")]
    pub max_sandboxes: Option<u32>,
    /// Sandboxes whose processes are started at the same time; others wait for their turn
    /// [default: 4 per cpu]
    #[arg(long, env = "SOULBOX_PARALLEL_STARTS", value_name = "N")]
    pub parallel_starts: Option<usize>,
    /// How long a create waits for room on a full machine before it is refused [default: 3s]
    #[arg(long, env = "SOULBOX_ADMISSION_WAIT", value_name = "TIME")]
    pub admission_wait: Option<Span>,
    /// Memory kept from all sandboxes, for the server and the system, in MiB [default: 5 % of the
    /// machine and at least 512, but at most a quarter]
    #[arg(long, env = "SOULBOX_RESERVE_MEMORY_MB", value_name = "MIB")]
    pub reserve_memory_mb: Option<u64>,
    /// Let the memory limits of all sandboxes together come to at most so many times what they may
    /// use of the machine [default: not summed]
    #[arg(long, env = "SOULBOX_OVERCOMMIT_MEMORY", value_name = "FACTOR")]
    pub overcommit_memory: Option<f64>,
    /// The same for the cpu limits of those that are not paused [default: not summed]
    #[arg(long, env = "SOULBOX_OVERCOMMIT_CPU", value_name = "FACTOR")]
    pub overcommit_cpu: Option<f64>,
    /// The longest life of a sandbox, such as 90m, 24h or 7d [default: 24h]
    #[arg(long, env = "SOULBOX_MAX_TIMEOUT", value_name = "TIME")]
    pub max_timeout: Option<Span>,
    /// Let sandboxes see the host's /opt, read-only, besides its /usr
    #[arg(long, env = "SOULBOX_INCLUDE_OPT", num_args = 0..=1, default_missing_value = "true")]
    pub include_opt: Option<bool>,
    /// A PEM file with certificates that sandboxes trust besides the host's; repeatable
    #[arg(
        long,
        env = "SOULBOX_EXTRA_CA",
        value_name = "FILE",
        value_delimiter = ','
    )]
    pub extra_ca: Option<Vec<PathBuf>>,
    /// Let tenants register webhooks on private and local addresses
    #[arg(long, env = "SOULBOX_WEBHOOK_ALLOW_PRIVATE", num_args = 0..=1, default_missing_value = "true")]
    pub webhook_allow_private: Option<bool>,
    /// No new sandboxes while the data folder's disk has less free space, in MiB [default: 1024]
    #[arg(long, env = "SOULBOX_MIN_FREE_DISK_MB", value_name = "MIB")]
    pub min_free_disk_mb: Option<u32>,
    /// What a sandbox may use when nothing else is asked for: cpus [default: 2]
    #[arg(long, env = "SOULBOX_CPUS", value_name = "N")]
    pub cpus: Option<f64>,
    /// Memory of a sandbox in MiB [default: 512]
    #[arg(long, env = "SOULBOX_MEMORY_MB", value_name = "MIB")]
    pub memory_mb: Option<u32>,
    /// Writable disk of a sandbox in MiB [default: 10240]
    #[arg(long, env = "SOULBOX_DISK_MB", value_name = "MIB")]
    pub disk_mb: Option<u32>,
    /// Processes and threads of a sandbox [default: 1024]
    #[arg(long, env = "SOULBOX_PIDS", value_name = "N")]
    pub pids: Option<u32>,
    /// What is logged, such as `info` or `soulbox_proxy=debug,info` [default: info]
    #[arg(long, env = "SOULBOX_LOG", value_name = "FILTER")]
    pub log: Option<String>,
    /// How it is logged [default: text]
    #[arg(long, env = "SOULBOX_LOG_FORMAT", value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Text,
    Json,
}

/// The result of all options, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    pub listen: SocketAddr,
    pub https: Option<SocketAddr>,
    pub admin: Option<SocketAddr>,
    pub data_dir: PathBuf,
    pub domain: String,
    /// Certificate and key of the operator.
    pub own_certificate: Option<(PathBuf, PathBuf)>,
    pub acme: Option<AcmeConfig>,
    pub name_server: Option<NameServer>,
    pub network_range: Option<Ipv4Net>,
    pub open_ranges: Vec<Ipv4Net>,
    pub pool: usize,
    pub warm: usize,
    pub parallel_builds: usize,
    /// Names of built-in templates.
    pub prebuild: Vec<String>,
    /// `None`: as long as the client.
    pub build_wait: Option<Duration>,
    /// Of the operator's own built-in templates.
    pub definitions: Option<PathBuf>,
    pub registry_allow: Vec<String>,
    pub registry_mirrors: Vec<Mirror>,
    pub max_sandboxes: u32,
    pub admission: Admission,
    pub max_timeout: Duration,
    pub include_opt: bool,
    pub extra_ca: Vec<PathBuf>,
    pub webhook_allow_private: bool,
    /// In bytes.
    pub min_free_disk: u64,
    pub limits: Limits,
    pub log: String,
    pub log_format: LogFormat,
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("could not read the configuration file {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{path}, line {line} ({written}): {problem}")]
    Parse {
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is there.
        written: String,
        problem: String,
    },
    #[error("--{option}: {problem}")]
    Value {
        option: &'static str,
        problem: String,
    },
}

impl Settings {
    /// These, and where they are silent, those of `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            listen: self.listen.or(other.listen),
            https: self.https.or(other.https),
            admin: self.admin.or(other.admin),
            data_dir: self.data_dir.or(other.data_dir),
            domain: self.domain.or(other.domain),
            tls_cert: self.tls_cert.or(other.tls_cert),
            tls_key: self.tls_key.or(other.tls_key),
            acme_challenge: self.acme_challenge.or(other.acme_challenge),
            acme_email: self.acme_email.or(other.acme_email),
            acme_directory: self.acme_directory.or(other.acme_directory),
            acme_ca: self.acme_ca.or(other.acme_ca),
            acme_dns_hook: self.acme_dns_hook.or(other.acme_dns_hook),
            acme_http: self.acme_http.or(other.acme_http),
            dns: self.dns.or(other.dns),
            dns_answer: self.dns_answer.or(other.dns_answer),
            network_range: self.network_range.or(other.network_range),
            open_range: self.open_range.or(other.open_range),
            pool: self.pool.or(other.pool),
            warm: self.warm.or(other.warm),
            parallel_builds: self.parallel_builds.or(other.parallel_builds),
            prebuild: self.prebuild.or(other.prebuild),
            build_wait: self.build_wait.or(other.build_wait),
            definitions: self.definitions.or(other.definitions),
            registry_allow: self.registry_allow.or(other.registry_allow),
            registry_mirror: self.registry_mirror.or(other.registry_mirror),
            max_sandboxes: self.max_sandboxes.or(other.max_sandboxes),
            parallel_starts: self.parallel_starts.or(other.parallel_starts),
            admission_wait: self.admission_wait.or(other.admission_wait),
            reserve_memory_mb: self.reserve_memory_mb.or(other.reserve_memory_mb),
            overcommit_memory: self.overcommit_memory.or(other.overcommit_memory),
            overcommit_cpu: self.overcommit_cpu.or(other.overcommit_cpu),
            max_timeout: self.max_timeout.or(other.max_timeout),
            include_opt: self.include_opt.or(other.include_opt),
            extra_ca: self.extra_ca.or(other.extra_ca),
            webhook_allow_private: self.webhook_allow_private.or(other.webhook_allow_private),
            min_free_disk_mb: self.min_free_disk_mb.or(other.min_free_disk_mb),
            cpus: self.cpus.or(other.cpus),
            memory_mb: self.memory_mb.or(other.memory_mb),
            disk_mb: self.disk_mb.or(other.disk_mb),
            pids: self.pids.or(other.pids),
            log: self.log.or(other.log),
            log_format: self.log_format.or(other.log_format),
        }
    }
}

impl TryFrom<ServeArgs> for Config {
    type Error = ConfigError;

    fn try_from(args: ServeArgs) -> Result<Self, ConfigError> {
        let file = args
            .config
            .as_deref()
            .map(Settings::from_file)
            .transpose()?
            .unwrap_or_default();
        let settings = args.settings.or(file);
        let config = Self::try_from(settings.clone())?;
        machine::check(&settings, &config.data_dir)?;
        Ok(config)
    }
}

impl TryFrom<Settings> for Config {
    type Error = ConfigError;

    fn try_from(settings: Settings) -> Result<Self, ConfigError> {
        let limits = limits(&settings)?;
        let admission = Admission::try_from(&settings)?;
        let domain = domain(settings.domain.as_deref().unwrap_or("sbx.localhost"))?;
        let acme = AcmeConfig::of(&settings, &domain)?;
        let https = settings.https.unwrap_or(Endpoint::local(3443)).address();
        let name_server = NameServer::of(&settings, https);
        let own_certificate = match (settings.tls_cert, settings.tls_key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => return Err(bad("tls-cert", "needs --tls-key as well")),
            (None, Some(_)) => return Err(bad("tls-key", "needs --tls-cert as well")),
        };
        let max_timeout = settings
            .max_timeout
            .map_or(Duration::from_hours(24), |span| span.0);
        if max_timeout.is_zero() {
            return Err(bad("max-timeout", "must be longer than nothing"));
        }
        let max_sandboxes = settings.max_sandboxes.unwrap_or(1000);
        if max_sandboxes == 0 {
            return Err(bad("max-sandboxes", "must be at least 1"));
        }
        let parallel_builds = settings.parallel_builds.unwrap_or_else(|| {
            std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
        });
        if parallel_builds == 0 {
            return Err(bad("parallel-builds", "must be at least 1"));
        }
        Ok(Self {
            listen: settings
                .listen
                .unwrap_or(SocketAddr::from(([127, 0, 0, 1], 3000))),
            https,
            admin: settings.admin.unwrap_or(Endpoint::local(3001)).address(),
            data_dir: absolute(
                settings
                    .data_dir
                    .unwrap_or_else(|| "/var/lib/soulbox".into()),
            )?,
            domain,
            own_certificate,
            acme,
            name_server,
            network_range: settings.network_range,
            open_ranges: settings.open_range.unwrap_or_default(),
            pool: settings.pool.unwrap_or(8),
            warm: settings.warm.unwrap_or(8),
            parallel_builds,
            prebuild: settings.prebuild.unwrap_or_default(),
            build_wait: settings.build_wait.map(|span| span.0),
            definitions: settings.definitions,
            registry_allow: settings.registry_allow.unwrap_or_default(),
            registry_mirrors: settings.registry_mirror.unwrap_or_default(),
            max_sandboxes,
            admission,
            max_timeout,
            include_opt: settings.include_opt.unwrap_or(false),
            extra_ca: settings.extra_ca.unwrap_or_default(),
            webhook_allow_private: settings.webhook_allow_private.unwrap_or(false),
            min_free_disk: u64::from(settings.min_free_disk_mb.unwrap_or(1024)) << 20,
            limits,
            log: settings.log.unwrap_or_else(|| "info".to_owned()),
            log_format: settings.log_format.unwrap_or(LogFormat::Text),
        })
    }
}

fn bad(option: &'static str, problem: impl Into<String>) -> ConfigError {
    ConfigError::Value {
        option,
        problem: problem.into(),
    }
}

fn limits(settings: &Settings) -> Result<Limits, ConfigError> {
    let default = Limits::default();
    let cpu_millis = match settings.cpus {
        None => default.cpu_millis,
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked range"
        )]
        Some(cpus) if (0.01..=1024.0).contains(&cpus) => (cpus * 1000.0).round() as u32,
        Some(_) => return Err(bad("cpus", "must be between 0.01 and 1024")),
    };
    let at_least = |option, value: Option<u32>, default: u32, least: u32| match value {
        Some(value) if value < least => Err(bad(option, format!("must be at least {least}"))),
        value => Ok(value.unwrap_or(default)),
    };
    Ok(Limits {
        cpu_millis,
        memory_mib: at_least("memory-mb", settings.memory_mb, default.memory_mib, 64)?,
        disk_mib: at_least("disk-mb", settings.disk_mb, default.disk_mib, 64)?,
        pids: at_least("pids", settings.pids, default.pids, 16)?,
    })
}

fn absolute(path: PathBuf) -> Result<PathBuf, ConfigError> {
    let path = std::path::absolute(path).map_err(|error| bad("data-dir", error.to_string()))?;
    // It ends up in files that shells read.
    let text = path
        .to_str()
        .ok_or_else(|| bad("data-dir", "must be valid UTF-8"))?;
    if text.chars().any(char::is_control) {
        return Err(bad("data-dir", "must not contain control characters"));
    }
    Ok(path)
}

fn domain(name: &str) -> Result<String, ConfigError> {
    let name = name.trim().trim_end_matches('.').to_ascii_lowercase();
    if name.contains(':') {
        return Err(bad(
            "domain",
            "is a name without a port; the port is that of --https",
        ));
    }
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    // 63 characters for `<port>-<id>` and a dot must still fit in front of it.
    if name.len() > 253 - 64 || !name.split('.').all(label) {
        return Err(bad("domain", format!("`{name}` is not a DNS name")));
    }
    Ok(name)
}

#[cfg(test)]
mod tests;
