//! What is asked of SoulBox: a server under measure, and one suite per file.
//!
//! # Layout
//! - `mark`: how the bench knows its own sandboxes again
//! - `calls`: what several suites ask for, timed to the moment that counts
//! - `create` (with `bursts`), `exec`, `pty`, `files`, `run_code`, `rest`, `throughput`,
//!   `population` (with `density` and `scale`): the suites

pub(crate) mod bursts;
mod calls;
pub(crate) mod create;
pub(crate) mod density;
pub(crate) mod exec;
pub(crate) mod files;
mod mark;
mod population;
mod pty;
pub(crate) mod rest;
pub(crate) mod run_code;
pub(crate) mod scale;
pub(crate) mod throughput;

use std::{collections::BTreeSet, path::PathBuf, pin::pin};

use futures_util::{StreamExt, stream};
use soulbox_client::{
    Client, Envd,
    model::{CreateSandbox, Sandbox},
};
use tokio::time::sleep;

pub(crate) use mark::Mark;

use crate::{
    Error, Failure, Options, Progress, Samples, Suite, Way, alternate_telling,
    alternatives::Alternatives,
    fleet::{Fleet, OwnServer, REST, filled},
    report::{Group, Row},
};

/// Should the bench be killed, sandboxes on a server that goes on end by themselves soon.
const LIFE_SECONDS: u32 = 120;
/// Of one sandbox that serves a whole suite.
const LONG_LIFE_SECONDS: u32 = 600;
const TEMPLATE: &str = "base";
/// Requests at the same time where that does not matter to the figure.
const AT_ONCE: usize = 16;
/// How often a pool that does not fill is asked for.
const PRIMED_AT_MOST: usize = 3;

/// A server under measure. Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(crate) client: Client,
    mark: Mark,
    /// What the machine knows of it; `None`: it was not started here.
    pub(crate) host: Option<Host>,
}

#[derive(Debug, Clone)]
pub(crate) struct Host {
    pub(crate) pid: u32,
    pub(crate) data: PathBuf,
    /// Sandboxes kept ready.
    pool: usize,
}

/// A sandbox of the bench.
#[derive(Debug, Clone)]
pub(crate) struct Made {
    pub(crate) id: String,
    pub(crate) envd: Envd,
}

impl Subject {
    pub(crate) fn own(server: &OwnServer, mark: Mark, pool: usize) -> Self {
        Self {
            client: server.client.clone(),
            mark,
            host: Some(Host {
                pid: server.pid,
                data: server.data.clone(),
                pool,
            }),
        }
    }

    pub(crate) fn elsewhere(client: Client, mark: Mark) -> Self {
        Self {
            client,
            mark,
            host: None,
        }
    }

    async fn make(&self, template: &str, seconds: u32) -> Result<Made, Failure> {
        let wish = CreateSandbox {
            template: template.to_owned(),
            timeout: Some(seconds),
            metadata: self.mark.metadata(),
            ..CreateSandbox::default()
        };
        Ok(self.enter(self.client.create(&wish).await?))
    }

    fn enter(&self, sandbox: Sandbox) -> Made {
        Made {
            envd: self.client.envd(&sandbox.id, sandbox.envd_access_token),
            id: sandbox.id,
        }
    }

    async fn end(&self, made: &Made) -> Result<(), Failure> {
        self.client.kill(&made.id).await?;
        Ok(())
    }

    /// What cannot be ended is left to the sweep at the end of the run.
    async fn end_all(&self, made: Vec<Made>) {
        self.end_all_telling(made, |_| {}).await;
    }

    async fn end_all_telling(&self, made: Vec<Made>, mut done: impl FnMut(usize)) {
        let ends = stream::iter(made)
            .map(async |made| self.end(&made).await)
            .buffer_unordered(AT_ONCE);
        let mut ends = pin!(ends.enumerate());
        while let Some((number, _)) = ends.next().await {
            done(number + 1);
        }
    }

    /// As many at the same time as are wanted, and what failed.
    async fn make_many(
        &self,
        count: usize,
        seconds: u32,
        mut done: impl FnMut(usize),
    ) -> (Vec<Made>, Samples) {
        let (mut made, mut samples) = (Vec::with_capacity(count), Samples::default());
        let mut makes = stream::iter(0..count)
            .map(async |_| calls::timed(self.make(TEMPLATE, seconds)).await)
            .buffer_unordered(AT_ONCE);
        while let Some(result) = makes.next().await {
            match result {
                Ok((took, one)) => {
                    samples.add(took);
                    made.push(one);
                }
                Err(failure) => samples.failed(&failure, false),
            }
            done(made.len());
        }
        (made, samples)
    }

    /// Returns when the server has nothing left to do and its pool, if it has one, is full.
    async fn at_rest(&self) -> Result<(), Failure> {
        let Some(host) = self.host.as_ref().filter(|host| host.pool > 0) else {
            sleep(REST).await;
            return Ok(());
        };
        for _ in 0..PRIMED_AT_MOST {
            if filled(&host.data, host.pool).await.is_ok() {
                return Ok(());
            }
            // The pool follows demand; there was too little lately.
            let (made, failed) = self.make_many(host.pool, LIFE_SECONDS, |_| {}).await;
            self.end_all(made).await;
            if let Some(failure) = failed.first_failure() {
                return Err(Failure::new(failure));
            }
        }
        Ok(filled(&host.data, host.pool).await?)
    }
}

/// What a suite works with.
pub(crate) struct Bench<'a> {
    pub(crate) options: &'a Options,
    pub(crate) fleet: &'a mut Fleet,
    pub(crate) others: &'a mut Alternatives,
    pub(crate) progress: &'a dyn Progress,
}

impl Bench<'_> {
    /// The groups of the suites that are wanted, in their order.
    pub(crate) async fn measure(&mut self) -> Result<Vec<Group>, Error> {
        let wanted: BTreeSet<Suite> = self.options.suites.clone();
        let mut groups = Vec::new();
        for suite in &wanted {
            self.tell(*suite, "starting", 0, 0);
            groups.extend(match suite {
                Suite::Create => create::measure(self).await?,
                Suite::Exec => exec::measure(self).await?,
                Suite::Pty => pty::measure(self).await?,
                Suite::Files => files::measure(self).await?,
                Suite::RunCode => run_code::measure(self).await?,
                Suite::Rest => rest::measure(self).await?,
                Suite::Throughput => throughput::measure(self).await?,
                Suite::Density => {
                    population::measure(self, true, wanted.contains(&Suite::Scale)).await?
                }
                // Both look at the same crowd: it is made once.
                Suite::Scale if wanted.contains(&Suite::Density) => Vec::new(),
                Suite::Scale => population::measure(self, false, true).await?,
            });
        }
        Ok(groups)
    }

    fn tell(&self, suite: Suite, what: &str, done: usize, of: usize) {
        self.progress.step(suite.name(), what, done, of);
    }

    /// Rounds of the ways in turn, as rows.
    async fn rows(
        &self,
        suite: Suite,
        what: &str,
        ways: &mut [Box<dyn Way>],
        rounds: usize,
    ) -> Vec<Row> {
        let warm_up = self.options.warm_up;
        let done = |round| self.tell(suite, what, round, rounds + warm_up);
        let all = alternate_telling(ways, rounds, warm_up, done).await;
        let measured = ways.iter().zip(&all);
        measured
            .map(|(way, samples)| Row::of(way.name(), way.method(), samples))
            .collect()
    }
}

/// The ways that are there, and rows for those that are not.
#[derive(Default)]
struct Ways {
    ways: Vec<Box<dyn Way>>,
    absent: Vec<Row>,
}

impl Ways {
    fn add(&mut self, name: &str, way: Result<Box<dyn Way>, Failure>) {
        match way {
            Ok(way) => self.ways.push(way),
            Err(failure) => self.absent.push(Row::skipped(name, &failure.0)),
        }
    }
}

fn group(id: &str, title: &str, method: &str, rows: Vec<Row>) -> Group {
    Group {
        id: id.to_owned(),
        title: title.to_owned(),
        method: method.to_owned(),
        rows,
    }
}
