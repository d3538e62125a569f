//! How far a build is: which step, how much of the whole, about how long it still takes.
//!
//! Known are the steps, and of the server's own templates about how long each of them takes on some
//! machine. How fast this machine is tells the build itself, by the steps that it has behind it.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use soulbox_build::BuildLog;
use soulbox_runtime::LogLevel;

/// Of what a step is, in a message.
const SHOWN: usize = 100;
/// What a program printed is no description of a step.
const OUTPUT: [&str; 2] = ["] [stdout]: ", "] [stderr]: "];

/// Of one build. It is a log, and sees the steps go by.
#[derive(Debug)]
pub(crate) struct Progress {
    log: Arc<dyn BuildLog>,
    now: Mutex<Position>,
}

#[derive(Debug, Clone)]
struct Position {
    /// For the base, each step, and the end; all nothing where it is not known.
    seconds: Vec<u32>,
    step: usize,
    /// When the step began.
    since: Instant,
    /// What the steps that ran took, and what they should have taken.
    took: Duration,
    expected: u32,
    says: String,
}

impl Progress {
    /// `seconds`: about how long the base, each step and the end take, on some machine.
    pub(crate) fn new(log: Arc<dyn BuildLog>, seconds: Vec<u32>) -> Self {
        Self {
            log,
            now: Mutex::new(Position {
                seconds,
                step: 0,
                since: Instant::now(),
                took: Duration::ZERO,
                expected: 0,
                says: "it has just begun".to_owned(),
            }),
        }
    }

    pub(crate) fn told(&self) -> String {
        self.now.lock().at(Instant::now()).to_string()
    }
}

impl BuildLog for Progress {
    fn line(&self, level: LogLevel, step: Option<&str>, message: &str) {
        self.now.lock().saw(step, message, Instant::now());
        self.log.line(level, step, message);
    }
}

impl Position {
    fn saw(&mut self, step: Option<&str>, message: &str, now: Instant) {
        let last = self.seconds.len().saturating_sub(1);
        let reached = match step {
            Some("base") => 0,
            Some("finalize") => last,
            Some(number) => number.parse().unwrap_or(self.step).min(last),
            None => self.step,
        };
        if reached > self.step {
            self.took += now.duration_since(self.since);
            self.expected += self.seconds[self.step..reached].iter().sum::<u32>();
            (self.step, self.since) = (reached, now);
        }
        if message.starts_with("CACHED ")
            && let Some(seconds) = self.seconds.get_mut(self.step)
        {
            // It takes no time, so it tells nothing of how fast this machine is.
            *seconds = 0;
        }
        if !OUTPUT.iter().any(|mark| message.contains(mark)) {
            self.says = message.chars().take(SHOWN).collect();
        }
    }

    fn at(&self, now: Instant) -> Told<'_> {
        let here = now.duration_since(self.since).as_secs_f64();
        let expected = f64::from(self.expected);
        let whole: f64 = f64::from(self.seconds.iter().sum::<u32>());
        let of_step = f64::from(self.seconds.get(self.step).copied().unwrap_or(0));
        // How many of the seconds in the definition pass in a second of this machine.
        let speed = if self.expected == 0 {
            1.0
        } else {
            expected / self.took.as_secs_f64().max(0.1)
        };
        // A step that takes longer than it should is nearly done, for as long as it takes.
        let done = expected + (here * speed).min(of_step * 0.95);
        Told {
            position: self,
            estimate: (whole > 0.0).then(|| Estimate {
                percent: (100.0 * done / whole).clamp(0.0, 99.0),
                left: ((whole - done) / speed).max(1.0),
            }),
        }
    }
}

struct Estimate {
    percent: f64,
    left: f64,
}

struct Told<'a> {
    position: &'a Position,
    estimate: Option<Estimate>,
}

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position {
            seconds,
            step,
            says,
            ..
        } = self.position;
        write!(f, "step {} of {}", step + 1, seconds.len().max(1))?;
        if let Some(Estimate { percent, left }) = self.estimate {
            write!(f, ", about {percent:.0} % done, about {left:.0} s left")?;
        }
        write!(f, " ({says})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(seconds: &[u32], since: Instant) -> Position {
        Position {
            seconds: seconds.to_vec(),
            step: 0,
            since,
            took: Duration::ZERO,
            expected: 0,
            says: String::new(),
        }
    }

    #[test]
    fn the_steps_that_are_done_tell_how_fast_this_machine_is() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut position = position(&[40, 0, 50, 10], start);
        position.saw(Some("base"), "[base] mmdebstrap", start);
        assert_eq!(
            position.at(after(10)).to_string(),
            "step 1 of 4, about 10 % done, about 90 s left ([base] mmdebstrap)"
        );
        // Twice as slow as where the figures come from.
        position.saw(Some("1"), "[builder 1/2] ENV A=1", after(80));
        position.saw(Some("2"), "[builder 2/2] RUN make", after(80));
        position.saw(Some("2"), "[builder 2/2] [stdout]: cc x.c", after(81));
        assert_eq!(
            position.at(after(90)).to_string(),
            "step 3 of 4, about 45 % done, about 110 s left ([builder 2/2] RUN make)"
        );
        assert!(position.at(after(1000)).to_string().contains("about 88 %"));
        position.saw(Some("finalize"), "[finalize] writing", after(180));
        assert!(
            position
                .at(after(180))
                .to_string()
                .contains("about 20 s left")
        );
    }

    #[test]
    fn what_is_cached_tells_nothing_of_the_speed() {
        let start = Instant::now();
        let mut position = position(&[40, 50, 10], start);
        position.saw(Some("base"), "CACHED [base] FROM debian", start);
        position.saw(Some("1"), "[builder 1/1] RUN make", start);
        assert_eq!(
            position.at(start + Duration::from_secs(30)).to_string(),
            "step 2 of 3, about 50 % done, about 30 s left ([builder 1/1] RUN make)"
        );
    }

    #[test]
    fn where_nothing_is_known_of_the_times_nothing_is_said_of_them() {
        let start = Instant::now();
        let mut position = position(&[0, 0, 0], start);
        position.saw(Some("7"), "[builder 7/7] RUN make", start);
        let told = position.at(start + Duration::from_secs(30)).to_string();
        assert_eq!(told, "step 3 of 3 ([builder 7/7] RUN make)");
    }
}
