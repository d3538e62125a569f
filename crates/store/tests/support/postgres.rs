//! A real PostgreSQL for each test: a copy of a cluster that was made once, started as the
//! unprivileged user that it asks for, reached by a socket in its own folder.
//!
//! It ends with the test: by itself when the test's process is killed (the kernel tells it). The
//! folder of a killed test is removed by the next one. The cluster that is copied stays in cargo's
//! target folder.

use std::{
    fs::{self, File},
    hash::{DefaultHasher, Hash, Hasher},
    io::Write,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rustix::process::{Pid, Signal, kill_process};
use sqlx::PgPool;
use tempfile::TempDir;

pub(crate) const USER: &str = "soulbox";
pub(crate) const PASSWORD: &str = "right: 100%";
const INITDB: [&str; 8] = [
    "--no-sync",
    "--no-instructions",
    "--wal-segsize=1",
    "--locale=C.UTF-8",
    "--encoding=UTF8",
    "--auth-local=trust",
    "--auth-host=scram-sha-256",
    "--username=soulbox",
];
const FOLDERS: &str = "soulbox-postgres-";
/// Held by the process that uses the folder.
const IN_USE: &str = "in-use";
const LONGEST_START: Duration = Duration::from_mins(1);

pub(crate) struct Server {
    programs: PathBuf,
    process: Child,
    settings: Vec<String>,
    folder: TempDir,
    _in_use: File,
}

impl Server {
    /// Without syncs, which cost time and show nothing here.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(&["fsync=off"])
    }

    /// With these settings in place of the defaults.
    pub(crate) fn start_with(settings: &[&str]) -> Option<Self> {
        let Some(programs) = programs() else {
            println!("skipped: PostgreSQL is not installed (apt-get install postgresql)");
            return None;
        };
        let (folder, in_use) = copy_of_cluster(&programs);
        let settings: Vec<_> = settings.iter().map(|&each| each.to_owned()).collect();
        let process = start(&programs, folder.path(), &settings);
        let mut server = Self {
            programs,
            process,
            settings,
            folder,
            _in_use: in_use,
        };
        server.wait_until_ready();
        Some(server)
    }

    /// Also at a port of 127.0.0.1, where it asks for a password.
    pub(crate) fn start_with_port() -> Option<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        Self::start_with(&[
            "fsync=off",
            "listen_addresses=127.0.0.1",
            &format!("port={port}"),
        ])
    }

    /// By its socket, where it knows everybody who gets there.
    pub(crate) fn url(&self) -> String {
        let socket = encoded(self.folder.path().to_str().unwrap());
        format!("postgres://{USER}@{socket}:{}/postgres", self.port())
    }

    pub(crate) fn url_at_port(&self, user: &str, password: &str, database: &str) -> String {
        let (password, port) = (encoded(password), self.port());
        format!("postgres://{user}:{password}@127.0.0.1:{port}/{database}")
    }

    /// Beside the store's own.
    pub(crate) async fn pool(&self) -> PgPool {
        PgPool::connect(&self.url()).await.unwrap()
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Ends it at once, as a crash would: what is not in its log by now is lost.
    pub(crate) fn crash(&mut self) {
        let process = Pid::from_child(&self.process);
        // Of these the postmaster ends its processes and removes its memory; of a kill it cannot.
        kill_process(process, Signal::QUIT).unwrap();
        self.process.wait().unwrap();
    }

    /// From the next start on.
    pub(crate) fn set(&mut self, setting: &str) {
        self.settings.push(setting.to_owned());
    }

    /// A file in its folder that it insists on owning alone.
    pub(crate) fn own(&self, file: &str) {
        let file = self.folder.path().join(file);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        give_to_postgres(&file);
    }

    pub(crate) fn start_again(&mut self) {
        self.process = start(&self.programs, self.folder.path(), &self.settings);
        self.wait_until_ready();
    }

    fn wait_until_ready(&mut self) {
        let port = self.port();
        let begun = Instant::now();
        loop {
            let asked = Command::new(self.programs.join("pg_isready"))
                .args(["--quiet", "--username", USER, "--dbname", "postgres"])
                .args(["--port", &port, "--host"])
                .arg(self.folder.path())
                .status();
            if asked.unwrap().success() {
                return;
            }
            if let Some(status) = self.process.try_wait().unwrap() {
                panic!("PostgreSQL ended with {status}: {}", self.log());
            }
            assert!(begun.elapsed() < LONGEST_START, "{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Also a part of the socket's name.
    fn port(&self) -> String {
        let given = self
            .settings
            .iter()
            .find_map(|each| each.strip_prefix("port="));
        given.unwrap_or("5432").to_owned()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(None) = self.process.try_wait() {
            self.crash();
        }
    }
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// Of the newest version that is installed.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let programs = versions.filter_map(|version| {
        let version = version.ok()?;
        let number: u32 = version.file_name().to_str()?.parse().ok()?;
        let programs = version.path().join("bin");
        programs
            .join("postgres")
            .exists()
            .then_some((number, programs))
    });
    programs.max().map(|(_, programs)| programs)
}

/// PostgreSQL refuses root; the package brings a user along.
fn as_postgres(program: &Path) -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command
        .args([
            "--reuid",
            "postgres",
            "--regid",
            "postgres",
            "--clear-groups",
        ])
        // When the thread that started it ends, which is the test's own.
        .args(["--pdeathsig", "QUIT", "--"])
        .arg(program);
    command
}

fn start(programs: &Path, folder: &Path, settings: &[String]) -> Child {
    let log = File::options()
        .create(true)
        .append(true)
        .open(folder.join("log"))
        .unwrap();
    let mut command = as_postgres(&programs.join("postgres"));
    command.arg("-D").arg(folder.join("data"));
    let socket = format!("unix_socket_directories={}", folder.display());
    for setting in ["listen_addresses=", &socket, "shared_buffers=8MB"] {
        command.args(["-c", setting]);
    }
    for setting in settings {
        command.args(["-c", setting]);
    }
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

/// One at a time: folders without a user are removed, and a new one has none for a moment.
fn copy_of_cluster(programs: &Path) -> (TempDir, File) {
    let shared = Path::new(env!("CARGO_TARGET_TMPDIR"));
    fs::create_dir_all(shared).unwrap();
    let one_at_a_time = File::create(shared.join("postgres.lock")).unwrap();
    one_at_a_time.lock().unwrap();
    remove_unused();
    let cluster = cluster(programs, shared);
    let folder = new_folder();
    let in_use = File::create(folder.path().join(IN_USE)).unwrap();
    in_use.lock().unwrap();
    drop(one_at_a_time);
    let data = folder.path().join("data");
    run(Command::new("cp").arg("-a").arg(cluster).arg(data));
    (folder, in_use)
}

fn new_folder() -> TempDir {
    let folder = tempfile::Builder::new().prefix(FOLDERS).tempdir().unwrap();
    // Its user makes the socket there; nobody else comes in.
    give_to_postgres(folder.path());
    folder
}

fn give_to_postgres(path: &Path) {
    if rustix::process::geteuid().is_root() {
        run(Command::new("chown").arg("postgres:").arg(path));
    }
}

fn remove_unused() {
    for entry in fs::read_dir(std::env::temp_dir()).unwrap().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(FOLDERS) {
            continue;
        }
        let in_use = File::open(entry.path().join(IN_USE));
        if in_use.map_or(true, |file| file.try_lock().is_ok()) {
            drop(fs::remove_dir_all(entry.path()));
        }
    }
}

/// Made once, for each version and each way to make it: it takes longer than all the rest.
fn cluster(programs: &Path, shared: &Path) -> PathBuf {
    let version = Command::new(programs.join("postgres"))
        .arg("--version")
        .output()
        .unwrap();
    let mut way = DefaultHasher::new();
    (version.stdout, INITDB, PASSWORD).hash(&mut way);
    let cluster = shared.join(format!("postgres-cluster-{:x}", way.finish()));
    if cluster.exists() {
        return cluster;
    }
    let folder = new_folder();
    let mut password = tempfile::NamedTempFile::new().unwrap();
    password.write_all(PASSWORD.as_bytes()).unwrap();
    fs::set_permissions(password.path(), fs::Permissions::from_mode(0o644)).unwrap();
    let mut made = as_postgres(&programs.join("initdb"));
    made.args(INITDB)
        .arg(format!("--pwfile={}", password.path().display()))
        .arg(folder.path().join("data"))
        .stdout(Stdio::null());
    run(&mut made);
    // Another file system, perhaps.
    let unfinished = shared.join("postgres-cluster-unfinished");
    drop(fs::remove_dir_all(&unfinished));
    run(Command::new("cp")
        .arg("-a")
        .arg(folder.path().join("data"))
        .arg(&unfinished));
    fs::rename(&unfinished, &cluster).unwrap();
    cluster
}

fn run(command: &mut Command) {
    let status = command.status().unwrap();
    assert!(status.success(), "{command:?} ended with {status}");
}
