//! Debian without a registry: `mmdebstrap`, from the package sources of this machine.

mod sources;

use std::{
    fs::Permissions,
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use soulbox_image::Image;
use soulbox_types::Chain;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    process::Command,
    time::timeout,
};

use super::image;
use crate::{
    durable,
    job::Job,
    key::Key,
    problem::{Doing, Problem, Result},
    step_log::StepLog,
};

/// Below the templates' folder.
pub(crate) const FOLDER: &str = "debian";
const LIMIT: Duration = Duration::from_mins(30);
const WEEK: u64 = 7 * 24 * 3600;
const MOST_PACKAGES: usize = 2000;
/// What a provisioned image has: cheaper here than one by one later.
const USUAL: [&str; 5] = ["bash", "ca-certificates", "curl", "iproute2", "procps"];
/// The end of what it says, for the error.
const TAIL: usize = 5;

/// The same packages of the same week are the same archive.
pub(super) async fn make(
    job: &Job,
    packages: &[String],
    forced: bool,
    step_log: &StepLog,
) -> Result<Image> {
    check(packages)?;
    let sources = tokio::task::spawn_blocking(sources::of_this_machine)
        .await
        .map_err(|error| Problem::internal("read the package sources", error))??;
    let week = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs() / WEEK);
    let mut parts = vec!["debian", &*sources.suite];
    parts.extend(packages.iter().map(String::as_str));
    let week = week.to_string();
    parts.push(&week);
    let key = Key::base(&job.request.tenant, &parts);
    let folder = job.context.config.templates_dir.join(FOLDER);
    let place = folder.clone();
    durable::blocking(move || durable::make_private(&place))
        .await
        .doing("make a folder for Debian")?;
    let _one_at_a_time = job.context.steps.lock(&key).await;
    let archive = folder.join(format!("{key}.tar"));
    if forced || !tokio::fs::try_exists(&archive).await.unwrap_or(false) {
        step_log.info(&format!(
            "mmdebstrap {}: this takes a minute",
            sources.suite
        ));
        let new = Unfinished(folder.join(format!("{}.new", uuid::Uuid::new_v4())));
        bootstrap(&sources, packages, &new.0, step_log).await?;
        tokio::fs::rename(&new.0, &archive)
            .await
            .doing("keep what mmdebstrap made")?;
    }
    image::import(job, &archive, step_log).await
}

/// Those that are kept. Blocking.
pub(crate) fn archives(templates_dir: &Path) -> io::Result<Vec<PathBuf>> {
    let folder = templates_dir.join(FOLDER);
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    fs_err::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect()
}

/// Removes archives that were made longer ago; the image store has what came out of them. Blocking.
pub(crate) fn collect(templates_dir: &Path, age: Duration) -> io::Result<()> {
    let folder = templates_dir.join(FOLDER);
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in fs_err::read_dir(folder)? {
        let entry = entry?;
        let made = entry.metadata()?.modified()?;
        if SystemTime::now()
            .duration_since(made)
            .is_ok_and(|since| since > age)
        {
            fs_err::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// They become arguments.
fn check(packages: &[String]) -> Result<()> {
    let valid = |name: &String| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.:~_=".contains(&byte);
        name.bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_alphanumeric())
            && name.bytes().all(plain)
    };
    match packages.iter().find(|name| !valid(name)) {
        Some(name) => Err(Problem::user(format!("{name:?} is no name of a package"))),
        None if packages.len() > MOST_PACKAGES => Err(Problem::user(format!(
            "more than {MOST_PACKAGES} packages at once"
        ))),
        None => Ok(()),
    }
}

async fn bootstrap(
    sources: &sources::Sources,
    packages: &[String],
    target: &Path,
    step_log: &StepLog,
) -> Result<()> {
    // Mounts and processes of its own: when it is stopped, nothing of it stays on the machine.
    // It dies with the server, and what it unpacks lies in our own folder, where the next start
    // removes it.
    let scratch = Scratch::new(target)?;
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "unshare"])
        .args(["--mount", "--pid", "--fork", "--kill-child", "--"])
        .args(["sh", "-c", "mount --bind \"$0\" /tmp && exec \"$@\""])
        .arg(&scratch.0)
        .arg("mmdebstrap")
        .args(["--mode=root", "--variant=apt", "--format=tar", "--quiet"])
        .arg("--aptopt=Acquire::Retries \"2\"")
        .arg("--aptopt=Acquire::http::Timeout \"30\"");
    let wanted: Vec<_> = USUAL
        .into_iter()
        .chain(packages.iter().map(String::as_str))
        .collect();
    command.arg(format!("--include={}", wanted.join(",")));
    // To standard output: in its own mount namespace it may not see our folder.
    command.arg(&sources.suite).arg("-");
    command.args(&sources.lines);
    let archive = std::fs::File::create(target)
        .map_err(|error| Problem::internal("make the archive", error))?;
    let mut child = command
        .env("LC_ALL", "C.UTF-8")
        .env("TMPDIR", "/tmp")
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .stdout(archive)
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| Problem::internal("start unshare for mmdebstrap", error))?;
    let stderr = child.stderr.take();
    let ran = timeout(LIMIT, async {
        let tail = log_output(stderr, step_log).await;
        (child.wait().await, tail)
    });
    let (status, tail) = ran.await.map_err(|_| {
        Problem::user(format!(
            "mmdebstrap took longer than {} minutes: are the package sources reachable?",
            LIMIT.as_secs() / 60
        ))
    })?;
    if status.doing("wait for mmdebstrap")?.success() {
        return Ok(());
    }
    if which("mmdebstrap").is_none() {
        return Err(Problem::user(
            "mmdebstrap is not installed on the server: run `apt install mmdebstrap` there, or \
             start from an image",
        ));
    }
    Err(Problem::user(format!(
        "mmdebstrap failed (is the server offline?): {}",
        tail.join(" / ")
    )))
}

/// Where mmdebstrap unpacks; goes with this.
struct Scratch(PathBuf);

impl Scratch {
    fn new(beside: &Path) -> Result<Self> {
        let path = beside.with_extension("scratch.new");
        std::fs::create_dir(&path)
            .and_then(|()| std::fs::set_permissions(&path, Permissions::from_mode(0o1777)))
            .map_err(|error| Problem::internal("make a folder for mmdebstrap", error))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let path = std::mem::take(&mut self.0);
        // Hundreds of MiB: not in the way of whoever waits.
        std::thread::spawn(move || {
            if let Err(error) = crate::removal::remove_tree(&path) {
                tracing::warn!(path = %path.display(), error = %Chain(&error), "could not remove what mmdebstrap left");
            }
        });
    }
}

/// Everything that is said, as lines of the log; returns the last ones.
async fn log_output(stream: Option<impl AsyncRead + Unpin>, step_log: &StepLog) -> Vec<String> {
    let mut tail = Vec::new();
    let Some(stream) = stream else { return tail };
    let mut lines = BufReader::new(stream).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        step_log.info(&line);
        if tail.len() == TAIL {
            tail.remove(0);
        }
        tail.push(line);
    }
    tail
}

fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

/// Goes with this, unless it got another name.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _renamed = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_packages_become_arguments() {
        let all =
            |names: &[&str]| check(&names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>());
        assert!(all(&["python3", "g++", "libc6:amd64", "nodejs"]).is_ok());
        for bad in ["", "--hook", "a,b", "a b", "$(id)", "a;b", "/etc/passwd"] {
            assert!(all(&[bad]).is_err(), "{bad}");
        }
    }
}
