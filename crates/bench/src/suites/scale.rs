//! What operations cost among few and among many sandboxes: it should be the same.

use std::time::Instant;

use tokio::time::sleep;

use super::{Bench, Target, TestSandbox, calls, group, population::FEW};
use crate::{
    Failure, Samples, Suite,
    fleet::SETTLE,
    report::{Figure, Group, Row},
};

/// How many times as long it takes among many.
pub(crate) const TIMES: &str = "times as long";
pub(crate) const OPERATIONS: [&str; 5] = ["create", "exec", "info", "list", "kill"];
const METHODS: [&str; 5] = [
    "from nothing to the first output, cold",
    "`true`, each time in another of the sandboxes",
    "GET /sandboxes/ID, each time of another",
    "GET /v2/sandboxes?limit=10",
    "DELETE /sandboxes/ID of the one that was just made",
];

/// Times in the order of [`OPERATIONS`].
pub(super) async fn cost(
    bench: &Bench<'_>,
    target: &Target,
    idle: &[TestSandbox],
    what: &str,
) -> [Samples; 5] {
    let mut all: [Samples; 5] = Default::default();
    let (rounds, warm_up) = (bench.options.rounds, bench.options.warm_up);
    // Spread over all of them, so that not only the newest are asked.
    let stride = (idle.len() / (rounds + warm_up).max(1)).max(1);
    for round in 0..rounds + warm_up {
        bench.report_step(Suite::Scale, what, round, rounds + warm_up);
        sleep(SETTLE).await;
        let sandbox = idle.get(round * stride % idle.len().max(1));
        let results = once(target, sandbox).await;
        for (samples, result) in all.iter_mut().zip(results) {
            match (result, round < warm_up) {
                (Ok(_), true) => {}
                (Ok(took), false) => samples.add(took),
                (Err(failure), warming) => samples.failed(&failure, warming),
            }
        }
    }
    all
}

async fn once(
    target: &Target,
    sandbox: Option<&TestSandbox>,
) -> [Result<std::time::Duration, Failure>; 5] {
    let nobody = || Err(Failure::new("there is no sandbox to ask"));
    let (exec, info) = match sandbox {
        Some(sandbox) => (
            calls::execute(&sandbox.envd).await,
            time(target.client.sandbox(&sandbox.id)).await,
        ),
        None => (nobody(), nobody()),
    };
    let list = time(target.client.list_newest(10)).await;
    let (create, kill) = match calls::first_output(target).await {
        Ok((took, sandbox)) => (Ok(took), time(target.client.kill(&sandbox.id)).await),
        Err(failure) => (Err(failure), Err(Failure::new("it was not made"))),
    };
    [create, exec, info, list, kill]
}

async fn time<T>(
    call: impl Future<Output = soulbox_client::Result<T>>,
) -> Result<std::time::Duration, Failure> {
    let begun = Instant::now();
    call.await?;
    Ok(begun.elapsed())
}

pub(super) fn compared(few: &[Samples; 5], many: &[Samples; 5], alive: usize) -> Group {
    let mut rows = Vec::new();
    for (index, name) in OPERATIONS.into_iter().enumerate() {
        let among_few = Row::of(&format!("{name} at {FEW}"), METHODS[index], &few[index]);
        let mut among_many = Row::of(&format!("{name} at {alive}"), "", &many[index]);
        if let (Some(few), Some(many)) = (among_few.summary, among_many.summary) {
            among_many.figures.push(Figure {
                name: TIMES.to_owned(),
                value: many.p50 / few.p50,
                unit: String::new(),
            });
        }
        rows.extend([among_few, among_many]);
    }
    let title = format!("The same among {FEW} and among {alive} sandboxes");
    let method = format!(
        "Each operation with {FEW} sandboxes alive and with {alive}, against the same server; \
         the figure is how many times as long its p50 is."
    );
    group("scale", &title, &method, rows)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_price_of_a_crowd_is_how_many_times_as_long_it_takes() {
        let of = |milliseconds| {
            let mut samples = Samples::default();
            samples.add(Duration::from_millis(milliseconds));
            samples
        };
        let few = [1, 2, 3, 4, 5].map(of);
        let many = [2, 2, 3, 8, 5].map(of);
        let group = compared(&few, &many, 1000);
        let row = group.rows.iter().find(|row| row.name == "list at 1000");
        assert!((row.unwrap().figures[0].value - 2.0).abs() < 1e-9);
    }
}
