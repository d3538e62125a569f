//! The suites: what is measured of SoulBox, one suite per file, and the server under test.
//!
//! # Layout
//! - `run_label`: labels the bench's own sandboxes
//! - `calls`: calls that several suites time
//! - `create` (with `bursts`), `exec`, `pty`, `files`, `run_code`, `pause`, `throughput`,
//!   `population` (with `density` and `scale`): the suites

pub(crate) mod bursts;
mod calls;
pub(crate) mod create;
pub(crate) mod density;
pub(crate) mod exec;
pub(crate) mod files;
pub(crate) mod pause;
mod population;
mod pty;
pub(crate) mod run_code;
mod run_label;
pub(crate) mod scale;
pub(crate) mod throughput;

use std::{collections::BTreeSet, path::PathBuf, pin::pin};

use futures_util::{StreamExt, stream};
use soulbox_client::{
    Client, Envd,
    model::{CreateSandbox, Sandbox},
};
use tokio::time::sleep;

pub(crate) use run_label::RunLabel;

use crate::{
    Contender, Error, Failure, Options, Progress, Samples, Suite, alternate_with_progress,
    alternatives::Alternatives,
    fleet::{Fleet, OwnServer, SETTLE, filled},
    host::quiet,
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

/// The server under test. Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) client: Client,
    label: RunLabel,
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
pub(crate) struct TestSandbox {
    pub(crate) id: String,
    pub(crate) envd: Envd,
}

impl Target {
    pub(crate) fn own(server: &OwnServer, label: RunLabel, pool: usize) -> Self {
        Self {
            client: server.client.clone(),
            label,
            host: Some(Host {
                pid: server.pid,
                data: server.data.clone(),
                pool,
            }),
        }
    }

    pub(crate) fn elsewhere(client: Client, label: RunLabel) -> Self {
        Self {
            client,
            label,
            host: None,
        }
    }

    async fn make(&self, template: &str, seconds: u32) -> Result<TestSandbox, Failure> {
        let request = CreateSandbox {
            template: template.to_owned(),
            timeout: Some(seconds),
            metadata: self.label.metadata(),
            ..CreateSandbox::default()
        };
        Ok(self.enter(self.client.create(&request).await?))
    }

    fn enter(&self, sandbox: Sandbox) -> TestSandbox {
        TestSandbox {
            envd: self.client.envd(&sandbox.id, sandbox.envd_access_token),
            id: sandbox.id,
        }
    }

    async fn end(&self, sandbox: &TestSandbox) -> Result<(), Failure> {
        self.client.kill(&sandbox.id).await?;
        Ok(())
    }

    /// What cannot be ended is left to the sweep at the end of the run.
    async fn end_all(&self, sandboxes: Vec<TestSandbox>) {
        self.end_all_with_progress(sandboxes, |_| {}).await;
    }

    async fn end_all_with_progress(
        &self,
        sandboxes: Vec<TestSandbox>,
        mut done: impl FnMut(usize),
    ) {
        let ends = stream::iter(sandboxes)
            .map(async |sandbox| self.end(&sandbox).await)
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
    ) -> (Vec<TestSandbox>, Samples) {
        let (mut sandboxes, mut samples) = (Vec::with_capacity(count), Samples::default());
        let mut makes = stream::iter(0..count)
            .map(async |_| calls::timed(self.make(TEMPLATE, seconds)).await)
            .buffer_unordered(AT_ONCE);
        while let Some(result) = makes.next().await {
            match result {
                Ok((took, one)) => {
                    samples.add(took);
                    sandboxes.push(one);
                }
                Err(failure) => samples.failed(&failure, false),
            }
            done(sandboxes.len());
        }
        (sandboxes, samples)
    }

    /// Returns when the server has nothing left to do and its pool, if it has one, is full.
    async fn wait_until_settled(&self) -> Result<(), Failure> {
        let Some(host) = self.host.as_ref().filter(|host| host.pool > 0) else {
            sleep(SETTLE).await;
            return Ok(());
        };
        for _ in 0..PRIMED_AT_MOST {
            if filled(&host.data, host.pool).await.is_ok() {
                return Ok(());
            }
            // The pool follows demand; there was too little lately.
            let (sandboxes, failed) = self.make_many(host.pool, LIFE_SECONDS, |_| {}).await;
            self.end_all(sandboxes).await;
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
            self.report_step(*suite, "starting", 0, 0);
            if !suite.compares() {
                self.end_alternatives(*suite).await;
            }
            // What the suite before has left: daemons that end, links and groups that are removed.
            if self.options.not_judged().is_none() {
                quiet(self.progress).await;
            }
            groups.extend(match suite {
                Suite::Create => create::measure(self).await?,
                Suite::Exec => exec::measure(self).await?,
                Suite::Pty => pty::measure(self).await?,
                Suite::Files => files::measure(self).await?,
                Suite::RunCode => run_code::measure(self).await?,
                Suite::Pause => pause::measure(self).await?,
                Suite::Throughput => throughput::measure(self).await?,
                Suite::Density => {
                    population::measure(self, true, wanted.contains(&Suite::Scale)).await?
                }
                // Both measure the same population: it is made once.
                Suite::Scale if wanted.contains(&Suite::Density) => Vec::new(),
                Suite::Scale => population::measure(self, false, true).await?,
            });
        }
        Ok(groups)
    }

    /// A daemon that was started takes part as long as it runs: it hears of each link and each
    /// group, and its own are gone through with ours.
    async fn end_alternatives(&mut self, suite: Suite) {
        if let Err(failure) = self.others.close().await {
            self.report_step(suite, &failure.0, 0, 0);
        }
    }

    fn report_step(&self, suite: Suite, what: &str, done: usize, of: usize) {
        self.progress.step(suite.name(), what, done, of);
    }

    /// Alternates rounds of the contenders, and gives their rows.
    async fn rows(
        &self,
        suite: Suite,
        what: &str,
        contenders: &mut [Box<dyn Contender>],
        rounds: usize,
    ) -> Vec<Row> {
        let warm_up = self.options.warm_up;
        let done = |round| self.report_step(suite, what, round, rounds + warm_up);
        let all = alternate_with_progress(contenders, rounds, warm_up, done).await;
        let measured = contenders.iter().zip(&all);
        measured
            .map(|(contender, samples)| Row::of(contender.name(), contender.method(), samples))
            .collect()
    }
}

/// The contenders that are available, and rows for those that are not.
#[derive(Default)]
struct Contenders {
    available: Vec<Box<dyn Contender>>,
    absent: Vec<Row>,
}

impl Contenders {
    fn add(&mut self, name: &str, contender: Result<Box<dyn Contender>, Failure>) {
        match contender {
            Ok(contender) => self.available.push(contender),
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
