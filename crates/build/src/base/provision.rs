//! Makes an image usable for sandboxes: the default user, sudo, and the programs that E2B's clients
//! expect.

use std::time::Duration;

use sha2::{Digest, Sha256};
use soulbox_envd_client::{CopyRequest, OutputStream};
use soulbox_image::Image;
use soulbox_types::Limits;

use super::{image, script_log::ScriptLog};
use crate::{
    job::{Job, StageState},
    problem::{Doing, Problem, Result},
    scripts,
    state::{DEFAULT_USER, STANDARD_PATH, State},
    step_log::StepLog,
    step_sandbox::StepSandbox,
};

/// Package managers over slow mirrors.
const LIMIT: Duration = Duration::from_mins(20);
/// What package managers need, whatever the template's own sandboxes get.
const LEAST_MEMORY_MIB: u32 = 1024;
const LEAST_DISK_MIB: u32 = 4096;
const LEAST_PIDS: u32 = 512;
const AUTHORITIES: &str = "/usr/local/share/ca-certificates/soulbox.crt";
/// The first line of ours: by it, they are found in a bundle.
const MARK: &[u8] = b"# SoulBox: what this server trusts\n";
const BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";
/// As `base` has them: what programs read that bring a list of authorities of their own.
const AUTHORITY_VARIABLES: [&str; 6] = [
    "SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
];

/// What goes without it, when neither image nor network has it.
const OPTIONAL: [(&str, &str); 4] = [
    (
        "bash",
        "commands of E2B's clients will fail, steps use /bin/sh",
    ),
    ("curl", "ready commands that wait for a URL will fail"),
    ("ss", "ready commands that wait for a port will fail"),
    ("pgrep", "ready commands that wait for a process will fail"),
];

/// Files of the host that are copied into the image.
struct HostFiles {
    sudo: Vec<u8>,
    authorities: Option<Vec<u8>>,
}

impl HostFiles {
    async fn read(job: &Job) -> Result<Self> {
        let config = &job.context.config;
        let sudo = tokio::fs::read(&config.sudo).await;
        let authorities = match &config.ca_bundle {
            Some(path) => {
                let mut content = MARK.to_vec();
                let bundle = tokio::fs::read(path).await;
                content.append(&mut bundle.doing("read the authorities")?);
                Some(content)
            }
            None => None,
        };
        Ok(Self {
            sudo: sudo.doing("read the sudo helper")?,
            authorities,
        })
    }

    /// Changes when provisioning would give another result.
    fn fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        for part in [
            scripts::FACTS.as_bytes(),
            scripts::PROVISION.as_bytes(),
            &self.sudo,
            self.authorities.as_deref().unwrap_or_default(),
        ] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hex::encode(hash.finalize())
    }
}

pub(super) async fn provision(
    job: &Job,
    name: &str,
    image: Image,
    forced: bool,
    step_log: &StepLog,
) -> Result<StageState> {
    let host_files = HostFiles::read(job).await?;
    let mut stage_state = image::image_state(job, &image);
    let key = stage_state
        .key
        .then(&["provision", &host_files.fingerprint()]);
    let steps = &job.context.steps;
    let _one_at_a_time = steps.lock(&key).await;
    let found = if forced { None } else { steps.find(&key).await };
    let label = format!("FROM {name}");
    step_log.begins(&label, key.short(), found.is_some());
    let done = if let Some(done) = found {
        done
    } else {
        let sandbox = StepSandbox::open(job, &stage_state, limits(job), step_log).await?;
        step_log.info("making the image fit for sandboxes");
        run(&sandbox, &host_files, step_log).await?;
        let draft = steps.begin(&key);
        let added = sandbox.export(draft.path()).await?;
        let state = state(stage_state.state.clone(), host_files.authorities.is_some());
        let done = steps.finish(draft, state, added, label, false).await;
        done.doing("keep the prepared image")?
    };
    stage_state.advance(&key, done);
    Ok(stage_state)
}

fn limits(job: &Job) -> Limits {
    let wanted = job.request.limits;
    Limits {
        memory_mib: wanted.memory_mib.max(LEAST_MEMORY_MIB),
        disk_mib: wanted.disk_mib.max(LEAST_DISK_MIB),
        pids: wanted.pids.max(LEAST_PIDS),
        ..wanted
    }
}

fn state(mut state: State, own_authorities: bool) -> State {
    let path = state.env.entry("PATH".to_owned()).or_default();
    if path.is_empty() {
        STANDARD_PATH.clone_into(path);
    }
    if own_authorities {
        for name in AUTHORITY_VARIABLES {
            state
                .env
                .entry(name.to_owned())
                .or_insert_with(|| BUNDLE.to_owned());
        }
    }
    DEFAULT_USER.clone_into(&mut state.user);
    state
}

async fn run(sandbox: &StepSandbox, host_files: &HostFiles, step_log: &StepLog) -> Result<()> {
    let facts = sandbox
        .script(scripts::FACTS, &[])
        .await
        .map_err(|problem| match problem {
            Problem::User(reason) => Problem::user(format!(
                "the image cannot be used: sandboxes need a shell (/bin/sh) and an account named \
                 root in it ({reason})"
            )),
            internal @ Problem::Internal { .. } => internal,
        })?;
    if !facts.exit.is_success() {
        return Err(Problem::user(format!(
            "the image cannot be used: its shell does not work: {}",
            facts.reason()
        )));
    }
    let lacks = |what: &str| facts.stdout.lines().any(|line| line == what);
    if lacks("os-release") {
        return Err(Problem::user(
            "the image cannot be used: it has no /etc/os-release, so it is not a Linux \
             distribution; start from one, such as debian or alpine",
        ));
    }
    if let Some(authorities) = &host_files.authorities {
        put(sandbox, AUTHORITIES, authorities).await?;
    }
    let our_sudo = lacks("sudo");
    if our_sudo {
        put(sandbox, "/usr/bin/sudo", &host_files.sudo).await?;
    }
    let sudo = if our_sudo { "sudo" } else { "" };
    let mut script_log = ScriptLog::new(step_log);
    let args = [DEFAULT_USER, sudo];
    let mut output = |_: OutputStream, bytes: &[u8]| script_log.add(bytes);
    let ran = sandbox.script_with_output(scripts::PROVISION, &args, &mut output, LIMIT);
    let exit = ran.await?;
    if !exit.is_success() {
        script_log.show();
        return Err(Problem::user(format!(
            "preparing the image failed: {exit}; the lines above say where"
        )));
    }
    let facts = sandbox.script(scripts::FACTS, &[]).await?;
    for (program, without) in OPTIONAL {
        if facts.stdout.lines().any(|line| line == program) {
            step_log.warn(&format!(
                "the image has no {program} and it could not be installed: {without}"
            ));
        }
    }
    Ok(())
}

/// One file of ours, for root alone to change.
async fn put(sandbox: &StepSandbox, path: &str, content: &[u8]) -> Result<()> {
    const NAME: &str = "file";
    let mut header = tar::Header::new_gnu();
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(content.len() as u64);
    header.set_mode(0o755);
    let mut archive = tar::Builder::new(Vec::new());
    let packed = archive
        .append_data(&mut header, NAME, content)
        .and_then(|()| archive.into_inner());
    let archive = std::io::Cursor::new(packed.doing("pack a file for the image")?);
    let copy = CopyRequest {
        src: NAME.to_owned(),
        dest: path.to_owned(),
        owner: "0:0".to_owned(),
        workdir: "/".to_owned(),
        user: "root".to_owned(),
        ..CopyRequest::default()
    };
    let copied = sandbox.envd.copy_in(&copy, archive).await;
    copied.map_err(|error| Problem::internal("put a file into the image", error))
}
