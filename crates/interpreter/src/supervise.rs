//! The parent of the server: starts it again when it ends, whatever ended it.
//!
//! What the dead server left running (kernels that nobody can talk to any more) comes to the
//! supervisor as orphans and is ended first.

use std::{
    fs, io,
    process::{Child, Command, ExitCode},
    thread::sleep,
    time::Duration,
};

use rustix::process::{
    Pid, Signal, WaitOptions, kill_process, set_child_subreaper, set_parent_process_death_signal,
    wait,
};

const SUPERVISED: &str = "SOULBOX_INTERPRETER_SUPERVISED";
const PAUSE: Duration = Duration::from_secs(1);

pub(crate) fn run() -> io::Result<ExitCode> {
    set_child_subreaper(Pid::from_raw(1))?;
    loop {
        let server = start()?;
        let server = Pid::from_child(&server);
        loop {
            match wait(WaitOptions::empty()) {
                Ok(Some((ended, status))) if ended == server => {
                    eprintln!("soulbox-interpreter: the server ended ({status:?}), starting again");
                    break;
                }
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        end_orphans();
        sleep(PAUSE);
    }
}

fn start() -> io::Result<Child> {
    let arguments = std::env::args_os()
        .skip(1)
        .filter(|argument| argument != "--supervise");
    Command::new(std::env::current_exe()?)
        .args(arguments)
        .env(SUPERVISED, "1")
        .spawn()
}

/// Called by the server: whoever ends the supervisor means the server too.
pub(crate) fn end_with_supervisor() {
    if std::env::var_os(SUPERVISED).is_some() {
        let _unsupported = set_parent_process_death_signal(Some(Signal::TERM));
    }
}

/// A process that is ended may hand on children of its own, hence more than one round.
fn end_orphans() {
    const ROUNDS: usize = 100;
    for _ in 0..ROUNDS {
        let children = fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
        let children: Vec<Pid> = children
            .split_whitespace()
            .filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
            .collect();
        if children.is_empty() {
            return;
        }
        for child in children {
            let _gone = kill_process(child, Signal::KILL);
        }
        sleep(Duration::from_millis(10));
        while matches!(wait(WaitOptions::NOHANG), Ok(Some(_))) {}
    }
}
