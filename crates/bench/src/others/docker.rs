//! Docker: `docker run`, `docker exec`, and many `docker run -d` at once.
//!
//! What is timed is the client on the command line, which is what people use. The image is one
//! static busybox, imported: nothing is pulled. Containers carry a label of this run and end by
//! themselves after some minutes, should nobody be left to remove them.

mod start;

use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::task::JoinSet;

use self::start::OwnDaemon;
use super::{
    WORD, Workspace,
    busybox::Busybox,
    program::{Program, Until, find, output_of},
};
use crate::{Contender, Failure, Samples};

const LIMIT: Duration = Duration::from_mins(1);
/// All of a burst, and removing all of it.
const BURST_LIMIT: Duration = Duration::from_mins(10);
/// How long a container stays that nobody removes.
const SECONDS_ALIVE: &str = "900";

/// A daemon that answers, and the image in it.
#[derive(Debug, Clone)]
pub struct Docker(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The client, with the address of the daemon.
    client: Vec<OsString>,
    image: String,
    label: String,
    /// Words about the daemon for the methods.
    about: String,
    own: Option<OwnDaemon>,
}

/// Many at once: how long until the last one was there, and each of them.
#[derive(Debug, Clone)]
pub struct Burst {
    pub method: String,
    pub wall: Duration,
    /// From the start of the burst; those that failed are counted.
    pub each: Samples,
}

impl Docker {
    /// The daemon that answers on this machine.
    pub async fn running(workspace: &Workspace) -> Result<Self, Failure> {
        let client = vec![find("docker")?.into_os_string()];
        let docker = Self::of(client, "the daemon of this machine".to_owned(), None);
        docker
            .call(&["version"])
            .await
            .map_err(|failure| Failure(format!("no Docker daemon answers here ({failure})")))?;
        docker.prepared(workspace).await
    }

    /// A daemon that is started for this run and leaves nothing behind. `finish` ends it; should
    /// the caller be killed, it ends as well.
    pub async fn started(workspace: &Workspace) -> Result<Self, Failure> {
        // Users of `docker run` have a bridge, so that is tried first.
        let mut reasons = Vec::new();
        for network in start::NETWORKS {
            let (own, client) = match OwnDaemon::start(workspace, &network).await {
                Ok(started) => started,
                Err(failure) => {
                    reasons.push(failure.0);
                    continue;
                }
            };
            let about = format!("a daemon started for this run, {}", network.about);
            match Self::of(client, about, Some(own)).prepared(workspace).await {
                Ok(docker) => return Ok(docker),
                Err(failure) => reasons.push(failure.0),
            }
        }
        reasons.dedup();
        Err(Failure(format!(
            "dockerd does not work here: {}",
            reasons.join("; ")
        )))
    }

    fn of(client: Vec<OsString>, about: String, own: Option<OwnDaemon>) -> Self {
        let run = std::process::id();
        Self(Arc::new(Inner {
            client,
            image: format!("soulbox-bench:{run}"),
            label: format!("soulbox-bench={run}"),
            about,
            own,
        }))
    }

    /// With the image, and after one container that really ran.
    async fn prepared(self, workspace: &Workspace) -> Result<Self, Failure> {
        let result = self.import(workspace).await;
        match result {
            Ok(()) => Ok(self),
            Err(failure) => {
                self.finish().await?;
                Err(failure)
            }
        }
    }

    async fn import(&self, workspace: &Workspace) -> Result<(), Failure> {
        let archive = workspace.folder("docker-image")?.join("image.tar");
        Busybox::find()?.archive(&archive)?;
        let path = archive.to_string_lossy();
        self.call(&["import", &path, &self.0.image]).await?;
        self.call(&["run", "--rm", &self.0.image, "true"]).await?;
        Ok(())
    }

    /// From nothing to the output of a command.
    pub fn run(&self) -> Box<dyn Contender> {
        Box::new(Program {
            name: "docker run",
            method: format!(
                "docker run --rm of an image with one static busybox, which runs echo; until its \
                 output has arrived. By {}.",
                self.0.about
            ),
            line: self.line(&[
                "run",
                "--rm",
                "--label",
                &self.0.label,
                &self.0.image,
                "echo",
                WORD,
            ]),
            until: Until::FirstOutput,
        })
    }

    /// `true` in a container that runs already.
    pub async fn exec(&self) -> Result<Box<dyn Contender>, Failure> {
        let container = self.call(&self.detached()).await?;
        let program = Program {
            name: "docker exec",
            method: format!(
                "docker exec of true in a container that runs; until the client has ended. By {}.",
                self.0.about
            ),
            line: self.line(&["exec", container.trim(), "true"]),
            until: Until::Exit,
        };
        program.tried().await
    }

    /// So many `docker run -d` at the same moment, until the last has returned. They are removed
    /// afterwards, which is not timed.
    pub async fn burst(&self, count: usize) -> Result<Burst, Failure> {
        let line = Arc::new(self.line(&self.detached()));
        let begun = Instant::now();
        let mut runs = JoinSet::new();
        for _ in 0..count {
            let line = Arc::clone(&line);
            runs.spawn(async move {
                let result = output_of(&line, BURST_LIMIT).await;
                result.map(|_| begun.elapsed())
            });
        }
        let mut each = Samples::default();
        while let Some(run) = runs.join_next().await {
            match run.map_err(Failure::new).flatten() {
                Ok(took) => each.add(took),
                Err(failure) => each.failed(&failure, false),
            }
        }
        let wall = begun.elapsed();
        self.remove_containers().await?;
        Ok(Burst {
            method: format!(
                "{count} docker run -d at the same moment, until the last client has ended. By {}.",
                self.0.about
            ),
            wall,
            each,
        })
    }

    /// Removes containers and image, and ends a daemon that was started. Contenders that are still
    /// around fail from now on.
    pub async fn finish(self) -> Result<(), Failure> {
        if let Some(own) = &self.0.own {
            return own.end().await;
        }
        self.remove_containers().await?;
        self.call(&["rmi", "--force", &self.0.image]).await?;
        Ok(())
    }

    async fn remove_containers(&self) -> Result<(), Failure> {
        let filter = format!("label={}", self.0.label);
        let listed = self.call(&["ps", "-aq", "--filter", &filter]).await?;
        let containers: Vec<&str> = listed.split_whitespace().collect();
        if containers.is_empty() {
            return Ok(());
        }
        let words = ["rm", "--force"].into_iter().chain(containers);
        let line = self.line(&words.collect::<Vec<_>>());
        output_of(&line, BURST_LIMIT).await.map(drop)
    }

    fn detached(&self) -> [&str; 8] {
        let Inner { label, image, .. } = &*self.0;
        [
            "run",
            "-d",
            "--rm",
            "--label",
            label,
            image,
            "sleep",
            SECONDS_ALIVE,
        ]
    }

    fn line(&self, words: &[&str]) -> Vec<OsString> {
        let words = words.iter().map(OsString::from);
        self.0.client.iter().cloned().chain(words).collect()
    }

    async fn call(&self, words: &[&str]) -> Result<String, Failure> {
        output_of(&self.line(words), LIMIT)
            .await
            .map_err(|failure| {
                let what = words.first().copied().unwrap_or_default();
                Failure(format!("docker {what}: {failure}"))
            })
    }
}

fn client_of(socket: &PathBuf) -> Result<Vec<OsString>, Failure> {
    let mut address = OsString::from("unix://");
    address.push(socket);
    let words = [
        find("docker")?.into_os_string(),
        OsStr::new("--host").into(),
        address,
    ];
    Ok(words.into())
}
