//! A command in a running sandbox, to its end.

use std::time::Duration;

use async_trait::async_trait;

use super::{Bench, LONG_LIFE_SECONDS, Made, TEMPLATE, Ways, calls, group};
use crate::{
    Error, Failure, Suite, Way,
    report::{Group, Row},
};

pub(crate) const SOULBOX: &str = "soulbox exec";

#[derive(Debug)]
struct Exec {
    made: Made,
}

#[async_trait]
impl Way for Exec {
    fn name(&self) -> &str {
        SOULBOX
    }

    fn method(&self) -> &'static str {
        "process.Process/Start of `true` through the proxy, until its end has been told, over a \
         connection that is kept"
    }

    async fn round(&mut self) -> Result<Duration, Failure> {
        calls::execute(&self.made.envd).await
    }
}

pub(super) async fn measure(bench: &mut Bench<'_>) -> Result<Vec<Group>, Error> {
    let found = bench.fleet.plain(bench.progress).await?;
    let mut ways = Ways::default();
    let made = match &found {
        Ok(subject) => subject.make(TEMPLATE, LONG_LIFE_SECONDS).await,
        Err(failure) => Err(failure.clone()),
    };
    match &made {
        Ok(made) => ways.ways.push(Box::new(Exec { made: made.clone() })),
        Err(failure) => ways.absent.push(Row::skipped(SOULBOX, &failure.0)),
    }
    for (name, way) in bench.others.exec().await {
        ways.add(name, way);
    }
    let rounds = bench.options.rounds;
    let mut rows = bench
        .rows(Suite::Exec, "one by one", &mut ways.ways, rounds)
        .await;
    rows.append(&mut ways.absent);
    if let (Ok(subject), Ok(made)) = (&found, &made) {
        // What cannot be ended is left to the sweep.
        subject.end(made).await.ok();
    }
    Ok(vec![group(
        "exec",
        "A command in a running sandbox",
        "`true`, until its end is known. Rounds alternate between the ways.",
        rows,
    )])
}
