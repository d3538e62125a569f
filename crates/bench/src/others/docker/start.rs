//! A daemon of our own: started on a folder of its own, watched by a copy of this program.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use tokio::{
    io::AsyncWriteExt,
    process::{Child, Command},
    sync::Mutex,
    time::{sleep, timeout},
};

use super::{Workspace, client_of, find, output_of};
use crate::{
    Failure, floor,
    floor::daemon::{Spec, TASK},
};

const START_LIMIT: Duration = Duration::from_mins(1);
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
const END_LIMIT: Duration = Duration::from_mins(1);
const PAUSE: Duration = Duration::from_millis(100);
/// A socket's address holds no more.
const LONGEST_SOCKET: usize = 107;

/// Empty, in place of the host's.
const CONFIG: &str = "daemon.json";

/// How containers are connected.
pub(super) struct Network {
    pub(super) about: &'static str,
    arguments: &'static [&'static str],
}

/// From what people use to what runs everywhere.
pub(super) const NETWORKS: [Network; 3] = [
    Network {
        about: "with its default bridge and firewall rules, in a network namespace",
        arguments: &[],
    },
    Network {
        about: "with its default bridge but, because they do not work here, without firewall \
                rules, in a network namespace",
        arguments: &["--iptables=false", "--ip6tables=false"],
    },
    Network {
        about: "without a network, because its bridge does not work here",
        arguments: &["--iptables=false", "--ip6tables=false", "--bridge=none"],
    },
];

/// Ends when dropped, and cleans up by itself then.
#[derive(Debug)]
pub(super) struct OwnDaemon {
    /// `None` after its end.
    watcher: Mutex<Option<Child>>,
    folder: PathBuf,
}

impl OwnDaemon {
    /// The daemon, and the command line of a client that speaks to it.
    pub(super) async fn start(
        workspace: &Workspace,
        network: &Network,
    ) -> Result<(Self, Vec<OsString>), Failure> {
        let dockerd = find("dockerd")?;
        let folder = workspace.folder("docker")?;
        let socket = folder.join("docker.sock");
        // The daemon sees another /run than we do.
        if folder.starts_with("/run") || socket.as_os_str().len() > LONGEST_SOCKET {
            let folder = folder.display();
            return Err(Failure(format!(
                "{folder}: choose a short path outside /run"
            )));
        }
        let client = client_of(&socket)?;
        fs::write(folder.join(CONFIG), "{}").map_err(Failure::new)?;
        let cgroup = cgroup();
        let spec = Spec {
            arguments: arguments(&folder, &socket, &cgroup, network),
            path: search_path(&dockerd),
            program: dockerd,
            log: workspace.folder.join("dockerd.log"),
            cgroup,
            folder: folder.clone(),
        };
        let watcher = Mutex::new(Some(watch(&workspace.program, &spec).await?));
        let own = Self { watcher, folder };
        match own.answers(&client).await {
            Ok(()) => Ok((own, client)),
            Err(failure) => {
                own.end().await?;
                let said = last_log_line(&spec.log);
                Err(Failure(said.unwrap_or(failure.0)))
            }
        }
    }

    async fn answers(&self, client: &[OsString]) -> Result<(), Failure> {
        let mut line = client.to_vec();
        line.push("version".into());
        let begun = Instant::now();
        loop {
            let Err(failure) = output_of(&line, ANSWER_LIMIT).await else {
                return Ok(());
            };
            let ended = match self.watcher.lock().await.as_mut() {
                Some(watcher) => watcher.try_wait().map_err(Failure::new)?.is_some(),
                None => true,
            };
            if ended || begun.elapsed() > START_LIMIT {
                return Err(failure);
            }
            sleep(PAUSE).await;
        }
    }

    /// When this returns well, nothing of the daemon is left.
    pub(super) async fn end(&self) -> Result<(), Failure> {
        let Some(mut watcher) = self.watcher.lock().await.take() else {
            return Ok(());
        };
        drop(watcher.stdin.take());
        let ended = timeout(END_LIMIT, watcher.wait()).await;
        let status = ended
            .map_err(|_| Failure("the daemon does not end".to_owned()))?
            .map_err(Failure::new)?;
        if status.success() || !self.folder.exists() {
            Ok(())
        } else {
            let folder = self.folder.display();
            Err(Failure(format!(
                "something of the daemon was left, see {folder}"
            )))
        }
    }
}

async fn watch(program: &Path, spec: &Spec) -> Result<Child, Failure> {
    let mut watcher = Command::new(program)
        .args([floor::COMMAND, TASK])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Not interrupted with us: it has to clean up.
        .process_group(0)
        .spawn()
        .map_err(|error| Failure(format!("{}: {error}", program.display())))?;
    let mut line = serde_json::to_vec(spec).map_err(Failure::new)?;
    line.push(b'\n');
    if let Some(input) = watcher.stdin.as_mut() {
        input.write_all(&line).await.map_err(Failure::new)?;
    }
    Ok(watcher)
}

fn arguments(folder: &Path, socket: &Path, cgroup: &str, network: &Network) -> Vec<OsString> {
    let mut words = Vec::new();
    let mut add = |name: &str, value: &Path| {
        words.extend([OsString::from(name), value.as_os_str().to_owned()]);
    };
    add("--data-root", &folder.join("data"));
    add("--exec-root", &folder.join("exec"));
    add("--pidfile", &folder.join("docker.pid"));
    add("--config-file", &folder.join(CONFIG));
    let mut address = OsString::from("unix://");
    address.push(socket);
    words.extend(["--host".into(), address]);
    words.push(format!("--cgroup-parent=/{cgroup}").into());
    words.push("--exec-opt=native.cgroupdriver=cgroupfs".into());
    words.extend(network.arguments.iter().map(OsString::from));
    words
}

/// Another name for each daemon: who removes the groups of one must not meet another's.
fn cgroup() -> String {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    let number = STARTED.fetch_add(1, Ordering::Relaxed);
    format!("soulbox-bench-{}-{number}", std::process::id())
}

/// What the daemon calls is beside it, or where administrators' tools are.
fn search_path(dockerd: &Path) -> OsString {
    let mut path = OsString::new();
    if let Some(folder) = dockerd.parent() {
        path.push(folder);
        path.push(":");
    }
    path.push(std::env::var_os("PATH").unwrap_or_default());
    path.push(":/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin");
    path
}

fn last_log_line(log: &Path) -> Option<String> {
    let text = fs::read_to_string(log).ok()?;
    let lines = text.lines().rev().filter(|line| *line != "dockerd ended");
    lines
        .map(str::trim)
        .find(|line| !line.is_empty())
        .map(ToOwned::to_owned)
}
