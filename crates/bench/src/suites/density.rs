//! Memory of an idle sandbox, everything counted.

use futures_util::{StreamExt, stream};

use super::{AT_ONCE, Bench, Target, calls, group, population::Population};
use crate::{
    Failure, Samples, Suite,
    host::{self, Reading},
    report::{Figure, Group, Row},
};

pub(crate) const MEMORY: &str = "memory per sandbox";
pub(crate) const LARGEST: &str = "the largest of these";
pub(crate) const ALIVE: &str = "sandboxes alive";
pub(crate) const ANSWERED: &str = "answered an exec";

pub(super) async fn reading(target: &Target) -> Result<Reading, Failure> {
    let Some(host) = target.host.clone() else {
        return Err(Failure::new(
            "a running server's memory is not looked at: only that of one that the bench starts",
        ));
    };
    host::settled(host.pid, host.data).await
}

pub(super) async fn measure(bench: &Bench<'_>, population: &Population) -> Group {
    let alive = population.idle.len();
    let answers = answers(bench, population).await;
    bench.report_step(Suite::Density, "reading the machine's memory", 0, 0);
    let memory = match (&population.before, reading(&population.target).await) {
        (Ok(before), Ok(after)) => memory_row(before, &after, alive),
        (Err(failure), _) => Row::skipped(MEMORY, &failure.0),
        (_, Err(failure)) => Row::skipped(MEMORY, &failure.0),
    };
    let makes = Row::of(
        "create, 16 at a time",
        "the request for a sandbox, cold, while their number grows",
        &population.makes,
    );
    let mut answers_row = Row::of(
        "exec in each of them",
        "`true` in every sandbox, 16 at a time, to its end",
        &answers,
    );
    answers_row.figures = vec![count(ALIVE, alive), count(ANSWERED, answers.times().len())];
    let method = format!(
        "{alive} sandboxes that have run one command and idle. Memory is read before them and \
         after, when it no longer moves, and divided by their number, in three ways: the fall of \
         the machine's MemAvailable, in which slabs that the kernel could give back do not count; \
         the growth of the PSS of all processes of the sandboxes and of the server, with the \
         growth of the kernel's slabs, stacks, page tables and per-cpu areas; what the sandboxes' \
         control groups are charged. The largest is held against the promise."
    );
    let title = format!("{alive} idle sandboxes");
    group("density", &title, &method, vec![memory, makes, answers_row])
}

async fn answers(bench: &Bench<'_>, population: &Population) -> Samples {
    let alive = population.idle.len();
    let mut samples = Samples::default();
    let mut calls = stream::iter(&population.idle)
        .map(async |sandbox| calls::execute(&sandbox.envd).await)
        .buffer_unordered(AT_ONCE);
    let mut done = 0;
    while let Some(result) = calls.next().await {
        done += 1;
        bench.report_step(Suite::Density, "exec in each", done, alive);
        match result {
            Ok(took) => samples.add(took),
            Err(failure) => samples.failed(&failure, false),
        }
    }
    samples
}

fn memory_row(before: &Reading, after: &Reading, alive: usize) -> Row {
    let mut row = Row::of(MEMORY, "see above", &Samples::default());
    let each = |name: &str, bytes: i64| mebibytes(name, bytes, alive);
    let (pss, slab) = (after.pss - before.pss, after.slab - before.slab);
    let kernel = after.kernel - before.kernel;
    let counted = [
        each("fall of MemAvailable", before.available - after.available),
        each(
            "PSS of all processes, and the kernel's",
            pss + slab + kernel,
        ),
        each("charged to control groups", after.charged - before.charged),
    ];
    let largest = counted
        .iter()
        .map(|figure| figure.value)
        .fold(0.0, f64::max);
    row.figures.extend(counted);
    row.figures.push(Figure {
        name: LARGEST.to_owned(),
        value: largest,
        unit: "MiB".to_owned(),
    });
    row.figures.extend([
        each("PSS of all processes", pss),
        each("of it, the server's", after.server_pss - before.server_pss),
        each(
            "private dirty pages of all processes",
            after.private_dirty - before.private_dirty,
        ),
        each("the kernel's slabs", slab),
        each("kernel stacks, page tables, per-cpu areas", kernel),
    ]);
    row
}

#[expect(clippy::cast_precision_loss, reason = "an average over megabytes")]
fn mebibytes(name: &str, bytes: i64, among: usize) -> Figure {
    Figure {
        name: name.to_owned(),
        value: bytes as f64 / f64::from(1 << 20) / among.max(1) as f64,
        unit: "MiB".to_owned(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn count(name: &str, count: usize) -> Figure {
    Figure {
        name: name.to_owned(),
        value: count as f64,
        unit: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_of_the_three_counts_is_the_one_that_is_judged() {
        let before = Reading {
            available: 1000 << 20,
            ..Reading::default()
        };
        let after = Reading {
            available: 980 << 20,
            pss: 25 << 20,
            slab: 5 << 20,
            charged: 10 << 20,
            private_dirty: 90 << 20,
            ..Reading::default()
        };
        let row = memory_row(&before, &after, 10);
        let value = |name: &str| {
            let found = row.figures.iter().find(|figure| figure.name == name);
            found.map(|figure| figure.value)
        };
        assert_eq!(value("fall of MemAvailable"), Some(2.0));
        assert_eq!(value(LARGEST), Some(3.0));
    }
}
