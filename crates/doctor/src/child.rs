//! Running a program with a time limit.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read, Seek, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{MemfdFlags, memfd_create},
    process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open},
};

pub(crate) use soulbox_sys::find_program as find;

/// More output than any of our questions is answered with.
const LONGEST_OUTPUT: u64 = 256 << 10;
/// For the kernel to take a killed process away.
const AFTER_KILL: Duration = Duration::from_secs(2);

pub(crate) struct Finished {
    /// `None`: it was killed at the time limit.
    pub(crate) success: Option<bool>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Finished {
    /// The last line that says something, for a report.
    pub(crate) fn complaint(&self) -> String {
        let last = |text: &str| text.trim().lines().last().map(ToOwned::to_owned);
        last(&self.stderr)
            .or_else(|| last(&self.stdout))
            .unwrap_or_else(|| "no output".into())
    }
}

/// Runs it in a process group of its own, all of which is killed when the time is up.
pub(crate) fn run<S: AsRef<OsStr>>(
    program: &Path,
    arguments: impl IntoIterator<Item = S>,
    environment: &[(&str, &OsStr)],
    input: &str,
    limit: Duration,
) -> io::Result<Finished> {
    // Files in memory instead of pipes: no thread to read them, nothing that can block.
    let (mut stdin, mut stdout, mut stderr) = (memory_file()?, memory_file()?, memory_file()?);
    stdin.write_all(input.as_bytes())?;
    stdin.rewind()?;
    let mut child = Command::new(program)
        .args(arguments)
        .envs(environment.iter().copied())
        .stdin(Stdio::from(stdin))
        .stdout(Stdio::from(stdout.try_clone()?))
        .stderr(Stdio::from(stderr.try_clone()?))
        .process_group(0)
        .spawn()?;
    let success = wait(&mut child, limit)?;
    Ok(Finished {
        success,
        stdout: text_of(&mut stdout)?,
        stderr: text_of(&mut stderr)?,
    })
}

fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<bool>> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("a pid out of range"))?;
    let fd = pidfd_open(pid, PidfdFlags::empty())?;
    let ends_within = |limit: Duration| -> io::Result<bool> {
        let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
        let mut fds = [PollFd::new(&fd, PollFlags::IN)];
        Ok(rustix::io::retry_on_intr(|| poll(&mut fds, Some(&limit)))? > 0)
    };
    if ends_within(limit)? {
        return Ok(Some(child.wait()?.success()));
    }
    kill_process_group(pid, Signal::KILL)?;
    if ends_within(AFTER_KILL)? {
        child.wait()?;
    }
    Ok(None)
}

fn memory_file() -> io::Result<File> {
    Ok(memfd_create("soulbox-doctor", MemfdFlags::CLOEXEC)?.into())
}

fn text_of(file: &mut File) -> io::Result<String> {
    file.rewind()?;
    let mut bytes = Vec::new();
    file.take(LONGEST_OUTPUT).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_failure_are_told() {
        let script = "cat; echo no >&2; exit 3";
        let limit = Duration::from_secs(20);
        let done = run(Path::new("/bin/sh"), ["-c", script], &[], "hi", limit).unwrap();
        assert_eq!((done.success, done.stdout.as_str()), (Some(false), "hi"));
        assert_eq!(done.complaint(), "no");
    }

    #[test]
    fn a_program_that_hangs_is_ended_with_its_children() {
        let script = "echo $$; sleep 60 & sleep 60";
        let limit = Duration::from_millis(100);
        let done = run(Path::new("/bin/sh"), ["-c", script], &[], "", limit).unwrap();
        assert_eq!(done.success, None);
        let group = done
            .stdout
            .trim()
            .parse()
            .ok()
            .and_then(Pid::from_raw)
            .unwrap();
        let start = std::time::Instant::now();
        while rustix::process::test_kill_process_group(group).is_ok() {
            assert!(
                start.elapsed() < Duration::from_secs(5),
                "the group is still there"
            );
            std::thread::yield_now();
        }
    }
}
