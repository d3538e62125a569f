//! Makes an image fit for sandboxes: the default user, sudo, and the programs that E2B's clients
//! expect.

use std::time::Duration;

use sha2::{Digest, Sha256};
use soulbox_guest::{CopyIn, OutputStream};
use soulbox_image::Image;
use soulbox_types::Limits;

use super::{aside::Aside, image};
use crate::{
    job::{Ground, Job},
    journal::Journal,
    problem::{Doing, Problem, Result},
    room::Room,
    scripts,
    state::{DEFAULT_USER, STANDARD_PATH, State},
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

/// What is brought along from the host.
struct Luggage {
    sudo: Vec<u8>,
    authorities: Option<Vec<u8>>,
}

impl Luggage {
    async fn pack(job: &Job) -> Result<Self> {
        let config = &job.shop.config;
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

    /// Another one when provisioning would give another result.
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
    journal: &Journal,
) -> Result<Ground> {
    let luggage = Luggage::pack(job).await?;
    let mut ground = image::ground(job, &image);
    let key = ground.key.then(&["provision", &luggage.fingerprint()]);
    let steps = &job.shop.steps;
    let _one_at_a_time = steps.lock(&key).await;
    let found = if forced { None } else { steps.find(&key).await };
    let label = format!("FROM {name}");
    journal.begins(&label, key.short(), found.is_some());
    let done = if let Some(done) = found {
        done
    } else {
        let room = Room::open(job, &ground, limits(job), journal).await?;
        journal.info("making the image fit for sandboxes");
        run(&room, &luggage, journal).await?;
        let draft = steps.begin(&key);
        let added = room.export(draft.path()).await?;
        let state = state(ground.state.clone(), luggage.authorities.is_some());
        let done = steps.finish(draft, state, added, label, false).await;
        done.doing("keep the prepared image")?
    };
    ground.advance(&key, done);
    Ok(ground)
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

async fn run(room: &Room, luggage: &Luggage, journal: &Journal) -> Result<()> {
    let facts = room
        .script(scripts::FACTS, &[])
        .await
        .map_err(|problem| match problem {
            Problem::Told(reason) => Problem::told(format!(
                "the image cannot be used: sandboxes need a shell (/bin/sh) and an account named \
                 root in it ({reason})"
            )),
            internal @ Problem::Internal { .. } => internal,
        })?;
    if !facts.exit.is_success() {
        return Err(Problem::told(format!(
            "the image cannot be used: its shell does not work: {}",
            facts.reason()
        )));
    }
    let lacks = |what: &str| facts.stdout.lines().any(|line| line == what);
    if lacks("os-release") {
        return Err(Problem::told(
            "the image cannot be used: it has no /etc/os-release, so it is not a Linux \
             distribution; start from one, such as debian or alpine",
        ));
    }
    if let Some(authorities) = &luggage.authorities {
        put(room, AUTHORITIES, authorities).await?;
    }
    let our_sudo = lacks("sudo");
    if our_sudo {
        put(room, "/usr/bin/sudo", &luggage.sudo).await?;
    }
    let sudo = if our_sudo { "sudo" } else { "" };
    let mut said = Aside::new(journal);
    let args = [DEFAULT_USER, sudo];
    let mut output = |_: OutputStream, bytes: &[u8]| said.add(bytes);
    let ran = room.script_to(scripts::PROVISION, &args, &mut output, LIMIT);
    let exit = ran.await?;
    if !exit.is_success() {
        said.show();
        return Err(Problem::told(format!(
            "preparing the image failed: {exit}; the lines above say where"
        )));
    }
    let facts = room.script(scripts::FACTS, &[]).await?;
    for (program, without) in OPTIONAL {
        if facts.stdout.lines().any(|line| line == program) {
            journal.warn(&format!(
                "the image has no {program} and it could not be installed: {without}"
            ));
        }
    }
    Ok(())
}

/// One file of ours, for root alone to change.
async fn put(room: &Room, path: &str, content: &[u8]) -> Result<()> {
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
    let copy = CopyIn {
        src: NAME.to_owned(),
        dest: path.to_owned(),
        owner: "0:0".to_owned(),
        workdir: "/".to_owned(),
        user: "root".to_owned(),
        ..CopyIn::default()
    };
    let copied = room.guest.copy_in(&copy, archive).await;
    copied.map_err(|error| Problem::internal("put a file into the image", error))
}
