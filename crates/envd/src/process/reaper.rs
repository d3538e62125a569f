//! Collects every child that dies: those that clients started and, as pid 1, all orphans.

use std::{rc::Rc, time::Duration};

use rustix::process::{WaitOptions, WaitStatus, wait};
use tokio::signal::unix::Signal;

use super::{running::Exit, start};
use crate::state::Envd;

/// Signals can be merged but not lost; this only bounds the damage should one ever be.
const SWEEP: Duration = Duration::from_secs(30);

pub(crate) async fn run(envd: Rc<Envd>, mut child_died: Signal) {
    loop {
        reap(&envd);
        let _either = tokio::time::timeout(SWEEP, child_died.recv()).await;
    }
}

fn reap(envd: &Rc<Envd>) {
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        let Some(exit) = exit(status) else { continue };
        let pid = pid.as_raw_nonzero().get().unsigned_abs();
        if let Some(process) = envd
            .processes
            .exited(pid, exit, envd.metrics.totals().memory)
        {
            start::finish_if_complete(envd, &process);
        }
    }
}

fn exit(status: WaitStatus) -> Option<Exit> {
    status
        .exit_status()
        .map(Exit::Code)
        .or_else(|| status.terminating_signal().map(Exit::Signal))
}
