//! The lower bound, measured through the copy of this program that clones.

use std::{ffi::OsStr, path::Path, process::Stdio, time::Duration};

use async_trait::async_trait;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use super::{WORD, Workspace, busybox::Busybox};
use crate::{
    Contender, Failure, floor,
    floor::clone::{Answer, GO, Spec, TASK},
};

/// The copy has a shorter one of its own.
const LIMIT: Duration = Duration::from_secs(30);

struct BareClone {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// Killed when dropped; its namespace takes along what it mounted.
    _copy: Child,
}

pub(super) async fn new(workspace: &Workspace) -> Result<Box<dyn Contender>, Failure> {
    let folder = workspace.folder("floor")?;
    Busybox::find()?.root(&folder.join("lower"))?;
    std::fs::create_dir_all(folder.join("rounds")).map_err(Failure::new)?;
    let spec = Spec {
        folder,
        program: "/bin/busybox".to_owned(),
        arguments: vec!["echo".to_owned(), WORD.to_owned()],
        expected: format!("{WORD}\n"),
    };
    let mut contender = BareClone::start(&workspace.program, &spec).await?;
    match contender.round().await {
        Ok(_) => Ok(Box::new(contender)),
        Err(failure) => Err(Failure(format!("does not work here: {failure}"))),
    }
}

impl BareClone {
    async fn start(program: &Path, spec: &Spec) -> Result<Self, Failure> {
        let mut copy = Command::new(program)
            .args([floor::COMMAND, TASK].map(OsStr::new))
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Failure(format!("{}: {error}", program.display())))?;
        let (Some(input), Some(output)) = (copy.stdin.take(), copy.stdout.take()) else {
            return Err(Failure("the copy of this program has no pipes".to_owned()));
        };
        let mut contender = Self {
            input,
            output: BufReader::new(output),
            _copy: copy,
        };
        contender
            .send_line(&serde_json::to_string(spec).map_err(Failure::new)?)
            .await?;
        Ok(contender)
    }

    async fn send_line(&mut self, line: &str) -> Result<(), Failure> {
        let line = format!("{line}\n");
        self.input
            .write_all(line.as_bytes())
            .await
            .map_err(|error| Failure(format!("the process that clones is gone: {error}")))
    }
}

#[async_trait]
impl Contender for BareClone {
    fn name(&self) -> &'static str {
        "bare clone"
    }

    fn method(&self) -> &'static str {
        "A process with one thread clones into new user, pid, mount, net, ipc, uts and cgroup \
         namespaces, mounts an overlay of a static busybox and an empty tmpfs, pivots into it and \
         executes echo; until its output has arrived. The floor: no cgroup, no address, no \
         /proc, no limits, no server."
    }

    async fn round(&mut self) -> Result<Duration, Failure> {
        self.send_line(GO).await?;
        let mut line = String::new();
        timeout(LIMIT, self.output.read_line(&mut line))
            .await
            .map_err(|_| Failure("the process that clones does not answer".to_owned()))?
            .map_err(Failure::new)?;
        match serde_json::from_str(&line) {
            Ok(Answer::Nanoseconds(took)) => Ok(Duration::from_nanos(took)),
            Ok(Answer::Failed(why)) => Err(Failure(why)),
            Err(_) => Err(Failure("the process that clones has ended".to_owned())),
        }
    }
}
