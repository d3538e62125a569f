//! The promises, and whether the run kept them.

use crate::{
    Summary,
    report::{Group, Row, Verdict},
    suites::{bursts, create, density, exec, files, pause, run_code, scale, throughput},
};

/// How the figure of a run is held against its promise.
#[derive(Debug, Clone, Copy)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Bound {
    fn keeps(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
        }
    }
}

/// Of fewer, the server's own share weighs too much, and one slow moment decides.
const FEW_SANDBOXES: f64 = 20.0;
/// MiB, of a thousand.
const MEMORY: f64 = 1.1;
/// Per second and cpu, the client's work included.
const RUNS: f64 = 60.0;
const TOO_FEW_SANDBOXES: &str = "too few sandboxes";

/// In the order of the acceptance, then the budget's. `not_judged`: why times are held
/// against no promise; that nothing fails is promised for every run.
pub(crate) fn of(groups: &[Group], not_judged: Option<&'static str>) -> Vec<Verdict> {
    let results = Results { groups, not_judged };
    [
        against_others(results),
        population(results),
        burst(results),
        budget(results),
    ]
    .concat()
}

#[derive(Debug, Clone, Copy)]
struct Results<'a> {
    groups: &'a [Group],
    not_judged: Option<&'static str>,
}

impl<'a> Results<'a> {
    fn group(self, id: &str) -> Option<&'a Group> {
        self.groups.iter().find(|group| group.id == id)
    }

    fn row(self, id: &str, name: &str) -> Option<&'a Row> {
        let rows = &self.group(id)?.rows;
        rows.iter().find(|row| row.name == name)
    }

    fn summary(self, id: &str, name: &str) -> Option<Summary> {
        self.row(id, name)?.summary
    }

    fn figure(self, id: &str, row: &str, name: &str) -> Option<f64> {
        let figures = &self.row(id, row)?.figures;
        let found = figures.iter().find(|figure| figure.name == name);
        found.map(|figure| figure.value)
    }

    /// A verdict about times of so many rounds.
    fn verdict(self, promise: String, value: Option<f64>, bound: Bound, unit: &str) -> Verdict {
        verdict(promise, value, bound, unit, self.not_judged)
    }
}

/// What was not measured at all makes no verdict; what lacks its alternative, or has too little to
/// be judged by, makes one that is open.
fn verdict(
    promise: String,
    value: Option<f64>,
    bound: Bound,
    unit: &str,
    not_judged: Option<&str>,
) -> Verdict {
    let (measured, kept) = match (value, not_judged) {
        (None, _) => ("not measured".to_owned(), None),
        (Some(value), Some(why)) => (format!("{value:.1}{unit}: {why}"), None),
        (Some(value), None) => (format!("{value:.1}{unit}"), Some(bound.keeps(value))),
    };
    Verdict {
        promise,
        measured,
        kept,
    }
}

fn unless_few(sandboxes: f64) -> Option<&'static str> {
    (sandboxes < FEW_SANDBOXES).then_some(TOO_FEW_SANDBOXES)
}

fn against_others(results: Results<'_>) -> Vec<Verdict> {
    let faster = |id: &str, ours: &str, other: &str, least: f64, what: &str| {
        let ours = results.summary(id, ours)?;
        let ratio = results.summary(id, other).map(|other| other.p50 / ours.p50);
        let promise = format!("{what}: at least {least} times faster than {other}");
        Some(results.verdict(promise, ratio, Bound::AtLeast(least), " times"))
    };
    let floor = || {
        let ours = results.summary("create-sequential", create::WARM)?;
        let floor = results.summary("create-sequential", "bare clone");
        let ratio = floor.map(|floor| ours.p50 / floor.p50);
        let promise = "create, warm: at most 3 times a bare clone".to_owned();
        Some(results.verdict(promise, ratio, Bound::AtMost(3.0), " times"))
    };
    let sequential = "create-sequential";
    [
        faster(sequential, create::WARM, "docker run", 20.0, "create, warm"),
        floor(),
        faster(sequential, create::COLD, "docker run", 5.0, "create, cold"),
        faster("exec", exec::SOULBOX, "docker exec", 10.0, "exec"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn population(results: Results<'_>) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let mut few = None;
    if let Some(row) = results.group("density").and_then(|group| {
        let has = |row: &&Row| {
            row.figures
                .iter()
                .any(|figure| figure.name == density::ALIVE)
        };
        group.rows.iter().find(has)
    }) {
        let of = |name: &str| {
            results
                .figure("density", &row.name, name)
                .unwrap_or_default()
        };
        let (alive, answered) = (of(density::ALIVE), of(density::ANSWERED));
        few = unless_few(alive);
        let failures = row.summary.map_or(0, |summary| summary.failures);
        verdicts.push(Verdict {
            promise: "every one of many sandboxes answers an exec".to_owned(),
            measured: format!("{answered:.0} of {alive:.0}"),
            kept: Some(failures == 0 && answered >= alive && alive > 0.0),
        });
    }
    if results.group("density").is_some() {
        let memory = results.figure("density", density::MEMORY, density::LARGEST);
        let promise =
            format!("memory of an idle sandbox, everything counted: at most {MEMORY} MiB");
        verdicts.push(verdict(promise, memory, Bound::AtMost(MEMORY), " MiB", few));
    }
    if let Some(group) = results.group("scale") {
        for operation in scale::OPERATIONS {
            let of = |row: &&Row| {
                row.name.starts_with(&format!("{operation} "))
                    && row.figures.iter().any(|figure| figure.name == scale::TIMES)
            };
            let found = group.rows.iter().find(of);
            let times = found.and_then(|row| results.figure("scale", &row.name, scale::TIMES));
            // A create is mostly the kernel's work, which has more to do among many sandboxes.
            let most = if operation == "create" { 2.0 } else { 1.5 };
            let promise =
                format!("{operation} among many: at most {most} times as long as among 10");
            verdicts.push(results.verdict(promise, times, Bound::AtMost(most), " times"));
        }
    }
    verdicts
}

fn burst(results: Results<'_>) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for name in [create::WARM, create::COLD] {
        let Some(summary) = results.summary("create-burst", name) else {
            continue;
        };
        verdicts.push(Verdict {
            promise: format!("burst, {name}: every request is answered"),
            measured: format!("{} failed", summary.failures),
            kept: Some(summary.failures == 0),
        });
        let wall = results.figure("create-burst", name, bursts::WALL);
        let promise = format!("burst, {name}: all there within 1.5 s");
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
        let few = unless_few(summary.count as f64);
        verdicts.push(verdict(promise, wall, Bound::AtMost(1500.0), " ms", few));
    }
    verdicts
}

fn budget(results: Results<'_>) -> Vec<Verdict> {
    let p50 = |id: &str, name: &str, limit: f64, what: &str| {
        let summary = results.summary(id, name)?;
        let promise = format!("{what}: p50 at most {limit} ms");
        Some(results.verdict(promise, Some(summary.p50), Bound::AtMost(limit), " ms"))
    };
    let p99 = |id: &str, name: &str, limit: f64, what: &str| {
        let summary = results.summary(id, name)?;
        let promise = format!("{what}: p99 at most {limit} ms");
        Some(results.verdict(promise, Some(summary.p99), Bound::AtMost(limit), " ms"))
    };
    let rate = |name: &str| {
        let rate = results.figure("files-large", name, files::RATE)?;
        let promise = format!("{name} of a large file: at least 1024 MiB/s");
        Some(results.verdict(promise, Some(rate), Bound::AtLeast(1024.0), " MiB/s"))
    };
    let runs = || {
        let done = results.figure("throughput", throughput::RUNS, throughput::DONE)?;
        let cpus = std::thread::available_parallelism().ok()?.get();
        #[expect(clippy::cast_precision_loss, reason = "few cpus")]
        let each = done / cpus as f64;
        let promise = format!("whole runs: at least {RUNS} per second and cpu");
        Some(results.verdict(promise, Some(each), Bound::AtLeast(RUNS), " per second"))
    };
    let sequential = "create-sequential";
    [
        p50(sequential, create::WARM, 10.0, "create, warm"),
        p99(sequential, create::WARM, 50.0, "create, warm"),
        p50(sequential, create::COLD, 40.0, "create, cold"),
        p50("exec", exec::SOULBOX, 15.0, "exec"),
        p50("exec", exec::SOULBOX, 5.0, "exec"),
        p50("pause", pause::PAUSE, 10.0, "pause"),
        p50("pause", pause::RESUME, 10.0, "resume"),
        p50("run-code", run_code::SOULBOX, 10.0, "run_code"),
        rate(files::WRITE),
        rate(files::READ),
        runs(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Samples, report::Figure};

    fn row(name: &str, milliseconds: u64) -> Row {
        let mut samples = Samples::default();
        samples.add(Duration::from_millis(milliseconds));
        Row::of(name, "", &samples)
    }

    fn group(id: &str, rows: Vec<Row>) -> Group {
        Group {
            id: id.to_owned(),
            title: String::new(),
            method: String::new(),
            rows,
        }
    }

    fn kept(verdicts: &[Verdict], promise: &str) -> Option<bool> {
        let found = verdicts.iter().find(|one| one.promise.starts_with(promise));
        found.unwrap_or_else(|| panic!("{promise}")).kept
    }

    #[test]
    fn ratios_are_taken_from_the_same_run() {
        let rows = vec![
            row(create::WARM, 10),
            row(create::COLD, 50),
            row("bare clone", 3),
            row("docker run", 210),
        ];
        let verdicts = of(&[group("create-sequential", rows)], None);
        assert_eq!(
            kept(&verdicts, "create, warm: at least 20 times"),
            Some(true)
        );
        assert_eq!(
            kept(&verdicts, "create, warm: at most 3 times"),
            Some(false)
        );
        assert_eq!(
            kept(&verdicts, "create, cold: at least 5 times"),
            Some(false)
        );
        assert_eq!(kept(&verdicts, "create, cold: p50 at most 40"), Some(false));
    }

    #[test]
    fn a_missing_alternative_leaves_the_verdict_open_and_a_missing_suite_makes_none() {
        let skipped = Row::skipped("docker exec", "docker is not installed");
        let verdicts = of(&[group("exec", vec![row(exec::SOULBOX, 4), skipped])], None);
        assert_eq!(kept(&verdicts, "exec: at least 10 times"), None);
        assert_eq!(kept(&verdicts, "exec: p50 at most 15"), Some(true));
        assert_eq!(verdicts.len(), 3);
        assert!(of(&[], None).is_empty());
    }

    #[test]
    fn a_crowd_must_answer_weigh_little_and_stay_fast() {
        let figure = |name: &str, value| Figure {
            name: name.to_owned(),
            value,
            unit: String::new(),
        };
        let mut memory = Row::skipped(density::MEMORY, "");
        memory.figures = vec![figure(density::LARGEST, 5.5)];
        let mut answers = row("exec in each of them", 3);
        answers.figures = vec![
            figure(density::ALIVE, 100.0),
            figure(density::ANSWERED, 99.0),
        ];
        let mut exec = row("exec at 100", 5);
        exec.figures = vec![figure(scale::TIMES, 1.2)];
        let groups = [
            group("density", vec![memory, answers]),
            group("scale", vec![row("exec at 10", 4), exec]),
        ];
        let verdicts = of(&groups, None);
        assert_eq!(kept(&verdicts, "every one of many sandboxes"), Some(false));
        assert_eq!(kept(&verdicts, "memory of an idle sandbox"), Some(false));
        assert_eq!(kept(&verdicts, "exec among many"), Some(true));
        assert_eq!(kept(&verdicts, "list among many"), None);
    }

    #[test]
    fn few_rounds_break_no_promise_about_times_but_every_request_must_be_answered() {
        let why = Some("too few rounds");
        let slow = row(create::WARM, 900);
        let mut burst = row(create::COLD, 900);
        burst.figures = vec![Figure {
            name: bursts::WALL.to_owned(),
            value: 9000.0,
            unit: String::new(),
        }];
        if let Some(summary) = burst.summary.as_mut() {
            summary.failures = 1;
        }
        let groups = [
            group("create-sequential", vec![slow]),
            group("create-burst", vec![burst]),
        ];
        let verdicts = of(&groups, why);
        let warm = "create, warm: p50 at most 10";
        assert_eq!(kept(&verdicts, warm), None);
        let found = verdicts.iter().find(|one| one.promise.starts_with(warm));
        assert_eq!(found.unwrap().measured, "900.0 ms: too few rounds");
        let burst = format!("burst, {}", create::COLD);
        assert_eq!(kept(&verdicts, &format!("{burst}: every")), Some(false));
        assert_eq!(kept(&verdicts, &format!("{burst}: all there")), None);
    }
}
