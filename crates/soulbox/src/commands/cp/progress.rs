//! How much has moved, for people who watch.

use std::{
    io::{self, IsTerminal, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::task::AbortHandle;

use crate::output::units;

const INTERVAL: Duration = Duration::from_millis(200);

#[derive(Debug, Clone)]
pub(super) struct Progress {
    moved: Arc<AtomicU64>,
    display: Option<AbortHandle>,
}

impl Progress {
    pub(super) fn start(quiet: bool) -> Self {
        let moved = Arc::new(AtomicU64::new(0));
        let shown = !quiet && io::stderr().is_terminal();
        let display = shown.then(|| tokio::spawn(show(moved.clone())).abort_handle());
        Self { moved, display }
    }

    pub(super) fn add(&self, bytes: usize) {
        self.moved.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn finish(&self) {
        if let Some(display) = &self.display {
            display.abort();
            write("");
        }
    }
}

async fn show(moved: Arc<AtomicU64>) {
    let started = Instant::now();
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let bytes = moved.load(Ordering::Relaxed);
        let millis = u64::try_from(started.elapsed().as_millis())
            .unwrap_or(u64::MAX)
            .max(1);
        let rate = bytes.saturating_mul(1000) / millis;
        write(&format!(
            "{}, {}/s",
            units::bytes(bytes),
            units::bytes(rate)
        ));
    }
}

/// Over the line that was there.
fn write(text: &str) {
    let mut err = io::stderr().lock();
    // Without a terminal to write to there is nothing to show.
    write!(err, "\r\x1b[K{text}")
        .and_then(|()| err.flush())
        .ok();
}
