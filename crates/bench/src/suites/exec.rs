//! A command in a running sandbox, to its end.

use std::time::Duration;

use async_trait::async_trait;

use super::{Bench, Contenders, LONG_LIFE_SECONDS, TEMPLATE, TestSandbox, calls, group};
use crate::{
    Contender, Error, Failure, Suite,
    report::{Group, Row},
};

pub(crate) const SOULBOX: &str = "soulbox exec";

#[derive(Debug)]
struct Exec {
    sandbox: TestSandbox,
}

#[async_trait]
impl Contender for Exec {
    fn name(&self) -> &str {
        SOULBOX
    }

    fn method(&self) -> &'static str {
        "process.Process/Start of `true` through the proxy, until its end has been reported, over a \
         connection that is kept"
    }

    async fn round(&mut self) -> Result<Duration, Failure> {
        calls::execute(&self.sandbox.envd).await
    }
}

pub(super) async fn measure(bench: &mut Bench<'_>) -> Result<Vec<Group>, Error> {
    let found = bench.fleet.plain(bench.progress).await?;
    let mut contenders = Contenders::default();
    let sandbox = match &found {
        Ok(target) => target.make(TEMPLATE, LONG_LIFE_SECONDS).await,
        Err(failure) => Err(failure.clone()),
    };
    match &sandbox {
        Ok(sandbox) => contenders.available.push(Box::new(Exec {
            sandbox: sandbox.clone(),
        })),
        Err(failure) => contenders.absent.push(Row::skipped(SOULBOX, &failure.0)),
    }
    for (name, contender) in bench.others.exec().await {
        contenders.add(name, contender);
    }
    let rounds = bench.options.rounds;
    let mut rows = bench
        .rows(Suite::Exec, "one by one", &mut contenders.available, rounds)
        .await;
    rows.append(&mut contenders.absent);
    if let (Ok(target), Ok(sandbox)) = (&found, &sandbox) {
        // What cannot be ended is left to the sweep.
        target.end(sandbox).await.ok();
    }
    Ok(vec![group(
        "exec",
        "A command in a running sandbox",
        "`true`, until its end is known. Rounds alternate between the contenders.",
        rows,
    )])
}
