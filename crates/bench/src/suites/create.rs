//! From the request for a sandbox to the first output of a command in it.

use std::time::{Duration, Instant};

use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};

use super::{Bench, Contenders, Target, TestSandbox, bursts, calls, calls::FirstOutput, group};
use crate::{
    Error, Failure, Samples, Suite,
    fleet::EVERYDAY,
    report::{Group, Row},
};

pub(crate) const WARM: &str = "soulbox, warm";
pub(crate) const COLD: &str = "soulbox, cold";
const WARM_METHOD: &str = "POST /v2/sandboxes, then process.Process/Start of echo through the \
     proxy, until its output has arrived; the server's pool of waiting sandboxes (8, the default) \
     is full before each round";
const COLD_METHOD: &str = "the same, against a server without a pool: every sandbox is made from \
     nothing";
/// As the public ComputeSDK benchmark has it.
const STAGGER: Duration = Duration::from_millis(200);

pub(super) async fn measure(bench: &mut Bench<'_>) -> Result<Vec<Group>, Error> {
    let mut subjects = bench
        .fleet
        .only(&[EVERYDAY, 0], bench.progress)
        .await?
        .into_iter();
    let absent = || Err(Failure::new("the server is not there"));
    let warm = subjects.next().unwrap_or_else(absent);
    let cold = subjects.next().unwrap_or_else(absent);
    let sequential = sequential(bench, &warm, &cold).await;
    let staggered = staggered(bench, &warm, &cold).await;
    let bursts = bursts::measure(bench, &cold).await?;
    Ok(vec![sequential, staggered, bursts])
}

type Found = Result<Target, Failure>;

async fn sequential(bench: &mut Bench<'_>, warm: &Found, cold: &Found) -> Group {
    let mut contenders = Contenders::default();
    for (name, method, target) in [(WARM, WARM_METHOD, warm), (COLD, COLD_METHOD, cold)] {
        let contender = target.clone().map(|target| -> Box<dyn crate::Contender> {
            Box::new(FirstOutput {
                target,
                name,
                method,
            })
        });
        contenders.add(name, contender);
    }
    bench.report_step(Suite::Create, "looking for alternatives", 0, 0);
    for (name, contender) in bench.others.first_output().await {
        contenders.add(name, contender);
    }
    let rounds = bench.options.rounds;
    let mut rows = bench
        .rows(
            Suite::Create,
            "one by one",
            &mut contenders.available,
            rounds,
        )
        .await;
    rows.append(&mut contenders.absent);
    group(
        "create-sequential",
        "From nothing to the first output of a command, one by one",
        "Each contender starts from nothing every time and is timed until the word of `echo` has arrived \
         in this process. Rounds alternate between the contenders. What is made is removed outside the \
         measured time.",
        rows,
    )
}

async fn staggered(bench: &mut Bench<'_>, warm: &Found, cold: &Found) -> Group {
    let mut rows = Vec::new();
    for (name, target) in [(WARM, warm), (COLD, cold)] {
        rows.push(match target {
            Ok(target) => one_staggered(bench, name, target).await,
            Err(failure) => Row::skipped(name, &failure.0),
        });
    }
    group(
        "create-staggered",
        "From nothing to the first output, one every 200 ms",
        "A new sandbox is asked for every 200 ms, whether or not the one before is there; all stay \
         until the last one is. The pool is full at the beginning and refills as fast as it can.",
        rows,
    )
}

async fn one_staggered(bench: &mut Bench<'_>, name: &str, target: &Target) -> Row {
    if let Err(failure) = target.wait_until_settled().await {
        return Row::skipped(name, &failure.0);
    }
    let count = bench.options.burst;
    let mut ticks = interval(STAGGER);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut under_way = JoinSet::new();
    for number in 0..count {
        ticks.tick().await;
        bench.report_step(Suite::Create, &format!("staggered, {name}"), number, count);
        let target = target.clone();
        under_way.spawn(async move { calls::first_output(&target).await });
    }
    let (samples, sandboxes) = collected(under_way).await;
    target.end_all(sandboxes).await;
    Row::of(name, &format!("{count} sandboxes, 200 ms apart"), &samples)
}

/// All that come, and the times of those that succeed.
pub(super) async fn collected(
    mut under_way: JoinSet<Result<(Duration, TestSandbox), Failure>>,
) -> (Samples, Vec<TestSandbox>) {
    let (mut samples, mut all) = (Samples::default(), Vec::new());
    while let Some(joined) = under_way.join_next().await {
        match joined.map_err(Failure::new).flatten() {
            Ok((took, sandbox)) => {
                samples.add(took);
                all.push(sandbox);
            }
            Err(failure) => samples.failed(&failure, false),
        }
    }
    (samples, all)
}

/// So many at the same moment: each one's time, and that of the last.
pub(super) async fn burst(target: &Target, count: usize) -> (Duration, Samples) {
    let begun = Instant::now();
    let mut under_way = JoinSet::new();
    for _ in 0..count {
        let target = target.clone();
        under_way.spawn(async move { calls::first_output(&target).await });
    }
    let (samples, sandboxes) = collected(under_way).await;
    let wall = begun.elapsed();
    target.end_all(sandboxes).await;
    (wall, samples)
}
