//! Whether the machine is quiet: by what runs now, not by the load average, which for minutes
//! still counts what has ended, such as the run before.

use std::{
    fs,
    time::{Duration, Instant},
};

use tokio::time::sleep;

use crate::Progress;

const PROC_STAT: &str = "/proc/stat";
/// Long enough for what wakes only once a second.
const LOOK: Duration = Duration::from_secs(2);
const TIMEOUT: Duration = Duration::from_mins(1);
/// Of all cpu time: what a machine does for itself stays below, one program on a small one does
/// not.
const BUSY: f64 = 0.15;

/// The share of all cpus' time that something else used.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Busy(f64);

impl Busy {
    #[cfg(test)]
    pub(crate) fn of_all(share: f64) -> Self {
        Self(share)
    }

    pub(crate) fn is_too_much(self) -> bool {
        self.0 > BUSY
    }

    pub(crate) fn percent(self) -> String {
        format!("{:.0} %", self.0 * 100.0)
    }
}

/// Ticks of all cpus together since the machine was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ticks {
    idle: u64,
    all: u64,
}

/// Waits until the machine is quiet, for a minute at most, and returns how busy it is then. `None`
/// if that cannot be found out.
pub(crate) async fn quiet(progress: &dyn Progress) -> Option<Busy> {
    wait(now, LOOK, TIMEOUT, progress).await
}

async fn wait(
    mut now: impl FnMut() -> Option<Ticks>,
    look: Duration,
    timeout: Duration,
    progress: &dyn Progress,
) -> Option<Busy> {
    let begun = Instant::now();
    let mut message = None;
    let mut before = now()?;
    loop {
        sleep(look).await;
        let after = now()?;
        let busy = between(before, after)?;
        if !busy.is_too_much() || begun.elapsed() >= timeout {
            return Some(busy);
        }
        before = after;
        let what = message.get_or_insert_with(|| {
            format!(
                "busy with other things ({} of its cpu time), waiting for quiet, at most {} s",
                busy.percent(),
                timeout.as_secs()
            )
        });
        let seconds = |span: Duration| usize::try_from(span.as_secs()).unwrap_or_default();
        progress.step("machine", what, seconds(begun.elapsed()), seconds(timeout));
    }
}

fn now() -> Option<Ticks> {
    parse(&fs::read_to_string(PROC_STAT).ok()?)
}

/// `cpu user nice system idle iowait irq softirq steal …`; what follows is part of `user` and
/// `nice`. Time that the hypervisor gave to others is time that something else used.
fn parse(text: &str) -> Option<Ticks> {
    const COUNTED: usize = 8;
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let numbers = line.split_whitespace().take(COUNTED).map(str::parse);
    let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().ok()?;
    Some(Ticks {
        idle: numbers.get(3)? + numbers.get(4)?,
        all: numbers.iter().sum(),
    })
}

#[expect(clippy::cast_precision_loss, reason = "seconds have few ticks")]
fn between(before: Ticks, after: Ticks) -> Option<Busy> {
    // A container's view may be made up, and go backwards.
    let all = after.all.checked_sub(before.all).filter(|all| *all > 0)?;
    let idle = after.idle.saturating_sub(before.idle).min(all);
    Some(Busy((all - idle) as f64 / all as f64))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct Recorder(Mutex<Vec<String>>);

    impl Progress for Recorder {
        fn step(&self, suite: &str, what: &str, _done: usize, _of: usize) {
            self.0.lock().unwrap().push(format!("{suite}: {what}"));
        }

        fn note(&self, text: &str) {
            self.step("note", text, 0, 0);
        }
    }

    /// A machine that was so busy in each span.
    fn machine(percents: &[u64]) -> impl FnMut() -> Option<Ticks> {
        let mut ticks = vec![Ticks { idle: 7, all: 7 }];
        for percent in percents {
            let last = ticks[ticks.len() - 1];
            ticks.push(Ticks {
                idle: last.idle + 100 - percent,
                all: last.all + 100,
            });
        }
        let mut ticks = ticks.into_iter();
        move || ticks.next()
    }

    #[test]
    fn what_waits_for_a_disk_is_idle_and_what_a_neighbour_was_given_is_not() {
        let text = "cpu  10 1 5 80 4 0 0 20 3 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        let ticks = parse(text);
        assert_eq!(ticks, Some(Ticks { idle: 84, all: 120 }));
        assert_eq!(parse("intr 1 2\n"), None);
        assert_eq!(parse("cpu  1 2 x 4 5\n"), None);
        assert!(now().is_some());
    }

    #[tokio::test]
    async fn a_quiet_machine_is_not_waited_for() {
        let recorder = Recorder::default();
        let busy = wait(machine(&[15]), Duration::ZERO, TIMEOUT, &recorder).await;
        assert_eq!(busy, Some(Busy(0.15)));
        assert!(!busy.unwrap().is_too_much());
        assert!(recorder.0.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn what_is_left_of_the_run_before_is_waited_for_and_told() {
        let recorder = Recorder::default();
        let busy = wait(machine(&[100, 63, 2]), Duration::ZERO, TIMEOUT, &recorder).await;
        assert_eq!(busy, Some(Busy(0.02)));
        let line = "machine: busy with other things (100 % of its cpu time), waiting for quiet, \
                    at most 60 s";
        assert_eq!(*recorder.0.lock().unwrap(), [line, line]);
    }

    #[tokio::test]
    async fn patience_ends_and_the_machine_is_called_busy() {
        let recorder = Recorder::default();
        let busy = wait(machine(&[50, 2]), Duration::ZERO, Duration::ZERO, &recorder).await;
        assert!(busy.unwrap().is_too_much());
        assert_eq!(busy.unwrap().percent(), "50 %");
    }

    #[tokio::test]
    async fn a_machine_that_cannot_be_looked_at_is_neither() {
        let recorder = Recorder::default();
        let none: Option<Busy> = None;
        assert_eq!(
            wait(|| None, Duration::ZERO, TIMEOUT, &recorder).await,
            none
        );
        let stands = || Some(Ticks { idle: 1, all: 1 });
        assert_eq!(wait(stands, Duration::ZERO, TIMEOUT, &recorder).await, none);
    }
}
