//! `POST /init`.

use std::{collections::BTreeMap, fs, io, path::Path};

use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use rustix::time::{ClockId, Timespec, clock_settime};
use serde::Deserialize;
use soulbox_types::{ENVD_VERSION, Secret};

use crate::{
    connect::frame,
    http::{body::Body, reply::Failure},
    metrics::Totals,
    startup::{is_init, owns_kernel},
    state::Envd,
    time,
};

/// The clock is moved when it is this far behind or ahead (nanoseconds).
const BEHIND: i128 = 50_000_000;
const AHEAD: i128 = 5_000_000_000;
const BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";
const EXTRA_CA: &str = "/usr/local/share/ca-certificates/soulbox.crt";
const BEGIN: &str = "# soulbox: begin\n";
const END: &str = "# soulbox: end\n";

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Init {
    access_token: Option<Secret>,
    env_vars: Option<BTreeMap<String, String>>,
    timestamp: Option<String>,
    default_user: Option<String>,
    default_workdir: Option<String>,
    ca_bundle: Option<String>,
    #[serde(alias = "hyperloopIP")]
    hyperloop_ip: Option<String>,
    volume_mounts: Vec<serde_json::Value>,
    // Ours: for a sandbox that was made before its user came.
    sandbox_id: Option<String>,
    template_id: Option<String>,
    memory_bytes: Option<u64>,
    cpu_count: Option<u32>,
    disk_bytes: Option<u64>,
}

/// The caller has shown the node's token, so a missing access token really means "none".
pub(crate) async fn init(
    envd: &Envd,
    request: Request<Incoming>,
) -> Result<Response<Body>, Failure> {
    let body = frame::whole_body(request.into_body())
        .await
        .map_err(|e| Failure::new(e.code.status(), e.message))?;
    let init: Init = if body.is_empty() {
        Init::default()
    } else {
        serde_json::from_slice(&body)
            .map_err(|e| Failure::bad_request(format!("invalid request body: {e}")))?
    };
    if !init.volume_mounts.is_empty() {
        return Err(Failure::new(
            StatusCode::NOT_IMPLEMENTED,
            "volume mounts are not supported yet",
        ));
    }
    let timestamp = match &init.timestamp {
        None => None,
        Some(text) => Some(
            time::parse_rfc3339(text)
                .ok_or_else(|| Failure::bad_request("timestamp is not RFC 3339"))?,
        ),
    };
    // A request that was overtaken by a newer one changes nothing.
    if timestamp.is_none() || timestamp >= envd.initialised_at.get() {
        if let Some(timestamp) = timestamp {
            envd.initialised_at.set(Some(timestamp));
            correct_clock(envd, timestamp);
        }
        apply(envd, init)?;
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
        .headers_mut()
        .insert("x-envd-version", HeaderValue::from_static(ENVD_VERSION));
    Ok(response)
}

fn apply(envd: &Envd, init: Init) -> Result<(), Failure> {
    if let Some(bundle) = &init.ca_bundle {
        install_ca(bundle, Path::new(EXTRA_CA), Path::new(BUNDLE))
            .map_err(|e| Failure::io("installing the CA bundle", &e))?;
    }
    let mut settings = envd.settings.borrow_mut();
    if let Some(address) = &init.hyperloop_ip {
        replace_section(
            Path::new("/etc/hosts"),
            &format!("{address} events.e2b.local\n"),
        )
        .map_err(|e| Failure::io("writing /etc/hosts", &e))?;
        settings.set_own_env("E2B_EVENTS_ADDRESS", format!("http://{address}"));
    }
    settings.access_token = init.access_token;
    if let Some(env) = init.env_vars {
        settings.user_env = env;
    }
    if let Some(user) = init.default_user.filter(|user| !user.is_empty()) {
        settings.default_user = user;
    }
    if let Some(workdir) = init.default_workdir {
        settings.default_workdir = workdir;
    }
    let totals = envd.metrics.totals();
    envd.metrics.set_totals(Totals {
        memory: init.memory_bytes.unwrap_or(totals.memory),
        cpus: init.cpu_count.unwrap_or(totals.cpus),
        disk: init.disk_bytes.unwrap_or(totals.disk),
    });
    if init.sandbox_id.is_some() || init.template_id.is_some() {
        settings.set_ids(init.sandbox_id, init.template_id);
        // Anywhere but in a sandbox, /run is somebody else's.
        if is_init() {
            let (sandbox, template) = settings.ids();
            super::write_marker_files(&sandbox, &template)
                .map_err(|e| Failure::io("writing /run/e2b", &e))?;
        }
    }
    Ok(())
}

/// The clock of a virtual machine that slept must be set. Elsewhere the clock is the host's, and is
/// never touched, even where the kernel would let us.
fn correct_clock(envd: &Envd, (seconds, nanos): (i64, u32)) {
    if !owns_kernel() {
        return;
    }
    let now = rustix::time::clock_gettime(ClockId::Realtime);
    let nanoseconds = |s: i64, n: i64| i128::from(s) * 1_000_000_000 + i128::from(n);
    let ahead = nanoseconds(now.tv_sec, now.tv_nsec) - nanoseconds(seconds, i64::from(nanos));
    if !(-BEHIND..=AHEAD).contains(&ahead) {
        let target = Timespec {
            tv_sec: seconds,
            tv_nsec: i64::from(nanos),
        };
        if let Err(error) = clock_settime(ClockId::Realtime, target) {
            envd.logs.warn(
                "envd",
                "cannot set the clock",
                [("error", error.to_string())],
            );
        }
    }
}

fn install_ca(pem: &str, own_file: &Path, bundle: &Path) -> io::Result<()> {
    for parent in [own_file, bundle].iter().filter_map(|path| path.parent()) {
        fs::create_dir_all(parent)?;
    }
    fs::write(own_file, pem)?;
    replace_section(bundle, pem)
}

/// Our lines in a file of the sandbox, between two marks; the rest stays as it is.
fn replace_section(path: &Path, content: &str) -> io::Result<()> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
        Err(e) => return Err(e),
    };
    let mut kept = match (text.find(BEGIN), text.find(END)) {
        (Some(begin), Some(end)) if begin < end => {
            format!("{}{}", &text[..begin], &text[end + END.len()..])
        }
        _ => text,
    };
    if !kept.is_empty() && !kept.ends_with('\n') {
        kept.push('\n');
    }
    fs::write(path, format!("{kept}{BEGIN}{}\n{END}", content.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_section_is_replaced_and_the_rest_is_kept() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "theirs").unwrap();
        replace_section(file.path(), "one").unwrap();
        replace_section(file.path(), "two\n").unwrap();
        let text = fs::read_to_string(file.path()).unwrap();
        assert_eq!(text, format!("theirs\n{BEGIN}two\n{END}"));
    }
}
