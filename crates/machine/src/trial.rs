//! One sandbox that nobody asked for, made and ended by the code that makes everybody's: whether
//! this machine can run sandboxes is known only then.

use std::{
    future::pending,
    io,
    pin::pin,
    time::{Duration, Instant},
};

use soulbox_runtime::{Disk, Error, NewSandbox, Origin, Result, Runtime, TRIAL_MARK};
use soulbox_template::Template;
use soulbox_types::{ENVD_PORT, Purpose, SandboxId, SandboxSpec, Tier};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use crate::{Machine, blocking::blocking};

/// For all of it; each part has a bound of its own. Tens of milliseconds are usual, seconds in an
/// emulated machine.
const LIMIT: Duration = Duration::from_mins(1);
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// For a server that is to stop meanwhile,
const HANGS_AFTER: Duration = Duration::from_secs(3);
/// and for the end of its trial then: longer than a group's processes are waited for, since who leaves
/// before leaves them frozen, with the disk in use.
const REMOVAL_LIMIT: Duration = Duration::from_secs(12);
/// No tenant has it.
const TENANT: &str = "00000000-0000-0000-0000-000000000000";
const QUESTION: &[u8] = b"GET /health HTTP/1.1\r\nHost: trial\r\nConnection: close\r\n\r\n";

/// What was done, in this order, and how long each took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial {
    pub steps: Vec<(&'static str, Duration)>,
}

impl Trial {
    pub fn total(&self) -> Duration {
        self.steps.iter().map(|(_, took)| *took).sum()
    }
}

/// Starts a sandbox of this template, asks it something, freezes, thaws and ends it. Nothing is
/// left of it, whatever comes of it.
pub async fn trial(machine: &Machine, runtime: &dyn Runtime, template: &Template) -> Result<Trial> {
    let done = trial_until(machine, runtime, template, pending()).await?;
    done.ok_or(Error::Timeout {
        what: "a trial sandbox".into(),
        limit: LIMIT,
    })
}

/// `None`: it was to stop in the middle. It is not cut short for that, since what has begun can
/// be taken back only when it is done, unless it hangs: a disk that does not answer must not
/// keep the server from leaving. What is left then is the next start's.
pub async fn trial_until(
    machine: &Machine,
    runtime: &dyn Runtime,
    template: &Template,
    stop: impl Future<Output = ()>,
) -> Result<Option<Trial>> {
    let spec = spec(runtime.tier(), template)?;
    let candidate = Candidate { machine, runtime };
    let done = {
        let mut trying = pin!(timeout(LIMIT, candidate.try_out(&spec, template)));
        tokio::select! {
            biased;
            done = trying.as_mut() => Some(done),
            () = stop => {
                timeout(HANGS_AFTER, trying).await.ok();
                None
            }
        }
    };
    let begun = Instant::now();
    let Some(done) = done else {
        if timeout(REMOVAL_LIMIT, candidate.remove_all_of(&spec.id))
            .await
            .is_err()
        {
            tracing::warn!("the trial sandbox hangs; the next start removes it");
        }
        return Ok(None);
    };
    let ended = candidate.remove_all_of(&spec.id).await;
    let mut steps = done.unwrap_or(Err(Error::Timeout {
        what: "a trial sandbox".into(),
        limit: LIMIT,
    }))?;
    ended?;
    steps.push(("ended", begun.elapsed()));
    Ok(Some(Trial { steps }))
}

/// A tier that is tried on this machine.
struct Candidate<'a> {
    machine: &'a Machine,
    runtime: &'a dyn Runtime,
}

impl Candidate<'_> {
    async fn try_out(
        &self,
        spec: &SandboxSpec,
        template: &Template,
    ) -> Result<Vec<(&'static str, Duration)>> {
        let mut steps = Vec::new();
        let mut begun = Instant::now();
        let mut did = |what| {
            steps.push((what, begun.elapsed()));
            begun = Instant::now();
        };
        let origin = Origin {
            disk: Disk::Fresh,
            snapshots: Vec::new(),
        };
        self.mark(&spec.id).await?;
        let new = NewSandbox {
            spec,
            template,
            origin,
        };
        self.runtime.create(new, &|_| Ok(())).await?;
        did("started");
        timeout(ANSWER_LIMIT, self.ask(&spec.id))
            .await
            .map_err(|_| Error::Timeout {
                what: "the answer of a trial sandbox".into(),
                limit: ANSWER_LIMIT,
            })??;
        did("answered");
        self.runtime.pause(&spec.id).await?;
        did("paused");
        self.runtime.resume(&spec.id).await?;
        did("resumed");
        Ok(steps)
    }

    /// A server that is killed now leaves a disk that is nobody's.
    async fn mark(&self, id: &SandboxId) -> Result<()> {
        let folder = self.machine.folder(id);
        blocking(move || {
            std::fs::create_dir_all(&folder)
                .and_then(|()| std::fs::write(folder.join(TRIAL_MARK), ""))
                .map_err(|error| Error::io("could not make a trial sandbox", error))
        })
        .await
    }

    async fn ask(&self, id: &SandboxId) -> Result<()> {
        let failed = |error| Error::io("the trial sandbox does not answer", error);
        let mut stream = self.runtime.dial(id, ENVD_PORT).await?;
        stream.write_all(QUESTION).await.map_err(failed)?;
        let mut answer = [0; 10];
        stream.read_exact(&mut answer).await.map_err(failed)?;
        if answer.starts_with(b"HTTP/1.1 2") {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&answer).into_owned();
        Err(failed(io::Error::other(format!("it said {said:?}"))))
    }

    async fn remove_all_of(&self, id: &SandboxId) -> Result<()> {
        self.runtime.destroy(id, None).await?;
        let folder = self.machine.folder(id);
        blocking(move || match std::fs::remove_dir_all(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::io("could not remove the trial sandbox", error))
            }
            _ => Ok(()),
        })
        .await
    }
}

fn spec(tier: Tier, template: &Template) -> Result<SandboxSpec> {
    let tenant = TENANT
        .parse()
        .map_err(|error| Error::io("could not name a trial sandbox", io::Error::other(error)))?;
    Ok(SandboxSpec {
        tier,
        purpose: Purpose::Build,
        limits: template.limits,
        ..SandboxSpec::new(tenant, template.id.clone(), LIMIT)
    })
}
