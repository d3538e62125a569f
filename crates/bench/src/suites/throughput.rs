//! How much gets done in a time, by several clients at once.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::{Bench, LONG_LIFE_SECONDS, TEMPLATE, Target, calls, group};
use crate::{
    Error, Failure, Samples, Suite,
    report::{Figure, Group, Row},
};

pub(crate) const RUNS: &str = "whole runs";
pub(crate) const DONE: &str = "done";
const COMMANDS: &str = "commands";
/// Failures of one worker after which it stops: a server that refuses would be asked in a loop.
const MOST_FAILURES: usize = 20;

pub(super) async fn measure(bench: &mut Bench<'_>) -> Result<Vec<Group>, Error> {
    let found = bench.fleet.everyday(bench.progress).await?;
    let rows = match &found {
        Ok(target) => vec![runs(bench, target).await, commands(bench, target).await],
        Err(failure) => [RUNS, COMMANDS]
            .map(|name| Row::skipped(name, &failure.0))
            .into(),
    };
    let method = format!(
        "{} clients at the same time on the same machine as the server, each asking again as soon \
         as it is answered, for {} s.",
        bench.options.parallel,
        bench.options.span.as_secs()
    );
    Ok(vec![group(
        "throughput",
        "How much gets done",
        &method,
        rows,
    )])
}

/// A sandbox, a command in it, and its end.
async fn runs(bench: &Bench<'_>, target: &Target) -> Row {
    let target = target.clone();
    let work = move || {
        let target = target.clone();
        async move {
            let begun = Instant::now();
            let (_, sandbox) = calls::first_output(&target).await?;
            target.end(&sandbox).await?;
            Ok(begun.elapsed())
        }
    };
    let method =
        "a sandbox, the output of echo in it, and its end; the pool is that of the default";
    flood(bench, RUNS, method, work).await
}

async fn commands(bench: &Bench<'_>, target: &Target) -> Row {
    let sandbox = match target.make(TEMPLATE, LONG_LIFE_SECONDS).await {
        Ok(sandbox) => sandbox,
        Err(failure) => return Row::skipped(COMMANDS, &failure.0),
    };
    let envd = sandbox.envd.clone();
    let work = move || {
        let envd = envd.clone();
        async move { calls::execute(&envd).await }
    };
    let row = flood(bench, COMMANDS, "`true` in one sandbox, to its end", work).await;
    // What cannot be ended is left to the sweep.
    target.end(&sandbox).await.ok();
    row
}

/// Does it over and over, by several at once.
async fn flood<F, W>(bench: &Bench<'_>, name: &str, method: &str, work: F) -> Row
where
    F: Fn() -> W + Clone + Send + 'static,
    W: Future<Output = Result<Duration, Failure>> + Send,
{
    bench.report_step(Suite::Throughput, name, 0, 0);
    let (begun, span) = (Instant::now(), bench.options.span);
    let mut workers = JoinSet::new();
    for _ in 0..bench.options.parallel.max(1) {
        let work = work.clone();
        workers.spawn(async move {
            let mut samples = Samples::default();
            while begun.elapsed() < span && samples.failures() < MOST_FAILURES {
                match work().await {
                    Ok(took) => samples.add(took),
                    Err(failure) => samples.failed(&failure, false),
                }
            }
            samples
        });
    }
    let mut all = Samples::default();
    while let Some(joined) = workers.join_next().await {
        match joined {
            Ok(samples) => all.merge(&samples),
            Err(error) => all.failed(&Failure::new(error), false),
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    let mut row = Row::of(name, method, &all);
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    row.figures.push(Figure {
        name: DONE.to_owned(),
        value: all.times().len() as f64 / seconds,
        unit: "per second".to_owned(),
    });
    row
}
