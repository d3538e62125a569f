//! Pause, resume, snapshot and fork.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::time::sleep;

use super::{
    Bench, Contenders, LIFE_SECONDS, LONG_LIFE_SECONDS, TEMPLATE, Target, TestSandbox, group,
};
use crate::{
    Contender, Error, Failure, Suite,
    fleet::SETTLE,
    report::{Group, Row},
};

pub(crate) const PAUSE: &str = "pause";
pub(crate) const RESUME: &str = "resume";
const SNAPSHOT: &str = "snapshot";
const FORK: &str = "fork into one";
const FORK_MANY: &str = "fork into many";
/// Each of these makes up to a hundred sandboxes.
const MOST_FORKS_INTO_MANY: usize = 5;

#[derive(Debug)]
enum Operation {
    Pause,
    Resume,
    Snapshot,
    Fork(u32),
}

impl Operation {
    fn name(&self) -> &'static str {
        match self {
            Self::Pause => PAUSE,
            Self::Resume => RESUME,
            Self::Snapshot => SNAPSHOT,
            Self::Fork(1) => FORK,
            Self::Fork(_) => FORK_MANY,
        }
    }
}

#[derive(Debug)]
struct TimedOperation {
    target: Target,
    sandbox: TestSandbox,
    operation: Operation,
}

#[async_trait]
impl Contender for TimedOperation {
    fn name(&self) -> &str {
        self.operation.name()
    }

    fn method(&self) -> &'static str {
        match self.operation {
            Operation::Pause => "POST /sandboxes/ID/pause; it is woken again outside the time",
            Operation::Resume => {
                "POST /v2/sandboxes/ID/connect of a paused one; it is paused outside the time"
            }
            Operation::Snapshot => "POST /sandboxes/ID/snapshots; deleted outside the time",
            Operation::Fork(_) => {
                "POST /sandboxes/ID/fork, until all copies are answered, which run; they are \
                 ended outside the time"
            }
        }
    }

    async fn round(&mut self) -> Result<Duration, Failure> {
        // What the server does after the last answer should not be in this one.
        sleep(SETTLE).await;
        match self.operation {
            Operation::Pause => self.pause_and_resume().await.map(|(paused, _)| paused),
            Operation::Resume => self.pause_and_resume().await.map(|(_, resumed)| resumed),
            Operation::Snapshot => self.snapshot().await,
            Operation::Fork(count) => self.fork(count).await,
        }
    }
}

impl TimedOperation {
    async fn pause_and_resume(&self) -> Result<(Duration, Duration), Failure> {
        let client = &self.target.client;
        let begun = Instant::now();
        client.pause(&self.sandbox.id).await?;
        let paused = begun.elapsed();
        let begun = Instant::now();
        client.connect(&self.sandbox.id, LONG_LIFE_SECONDS).await?;
        let resumed = begun.elapsed();
        // It must really be awake.
        super::calls::execute(&self.sandbox.envd).await?;
        Ok((paused, resumed))
    }

    async fn snapshot(&self) -> Result<Duration, Failure> {
        let client = &self.target.client;
        let begun = Instant::now();
        let snapshot = client.snapshot(&self.sandbox.id, None).await?;
        let took = begun.elapsed();
        client.delete_template(&snapshot.id).await?;
        Ok(took)
    }

    async fn fork(&self, count: u32) -> Result<Duration, Failure> {
        let client = &self.target.client;
        let begun = Instant::now();
        let copies = client.fork(&self.sandbox.id, count, LIFE_SECONDS).await?;
        let took = begun.elapsed();
        let mut refused = None;
        let mut sandboxes = Vec::new();
        for copy in copies {
            match copy {
                Ok(sandbox) => sandboxes.push(self.target.enter(sandbox)),
                Err(error) => refused = Some(error),
            }
        }
        // Before they go, that they run.
        let answered = match sandboxes.last() {
            Some(last) => super::calls::execute(&last.envd).await.map(drop),
            None => Err(Failure::new("there are no copies")),
        };
        self.target.end_all(sandboxes).await;
        if let Some(error) = refused {
            return Err(error.into());
        }
        answered.map(|()| took)
    }
}

pub(super) async fn measure(bench: &mut Bench<'_>) -> Result<Vec<Group>, Error> {
    let found = bench.fleet.plain(bench.progress).await?;
    let options = bench.options;
    let few = [
        Operation::Pause,
        Operation::Resume,
        Operation::Snapshot,
        Operation::Fork(1),
    ];
    let many = [Operation::Fork(options.copies)];
    let many_rounds = options.rounds.min(MOST_FORKS_INTO_MANY);
    Ok(vec![
        group(
            "pause",
            "Pause, resume, snapshot, fork",
            "Of an idle sandbox that runs. Rounds alternate between the operations, each of which \
             has a sandbox of its own.",
            rows(bench, &found, few.into(), options.rounds).await,
        ),
        group(
            "fork-many",
            &format!("A fork into {}", options.copies),
            "One request for all copies.",
            rows(bench, &found, many.into(), many_rounds).await,
        ),
    ])
}

async fn rows(
    bench: &Bench<'_>,
    found: &Result<Target, Failure>,
    operations: Vec<Operation>,
    rounds: usize,
) -> Vec<Row> {
    let (mut contenders, mut all) = (Contenders::default(), Vec::new());
    for operation in operations {
        let name = operation.name();
        let contender = match found {
            Ok(target) => target
                .make(TEMPLATE, LONG_LIFE_SECONDS)
                .await
                .map(|sandbox| {
                    all.push(sandbox.clone());
                    TimedOperation {
                        target: target.clone(),
                        sandbox,
                        operation,
                    }
                }),
            Err(failure) => Err(failure.clone()),
        };
        contenders.add(
            name,
            contender.map(|contender| -> Box<dyn Contender> { Box::new(contender) }),
        );
    }
    let mut rows = bench
        .rows(
            Suite::Pause,
            "one by one",
            &mut contenders.available,
            rounds,
        )
        .await;
    rows.append(&mut contenders.absent);
    if let Ok(target) = found {
        target.end_all(all).await;
    }
    rows
}
