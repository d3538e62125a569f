//! The least that a sandbox costs: one clone into all namespaces, an overlay, `pivot_root`, exec.
//!
//! On `go`, it answers with the nanoseconds from before the clone until the command's output
//! had arrived, or with what failed. Everything happens in a mount namespace of its own and on a
//! tmpfs in it, so nothing is left.

use std::{
    convert::Infallible,
    ffi::CString,
    fs::{self, File},
    io::{self, BufRead, Write},
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount},
    pipe::PipeFlags,
    process::{Pid, Signal, WaitOptions, kill_process, pivot_root, waitpid},
};
use serde::{Deserialize, Serialize};
use soulbox_sys::{
    clone::{Cloned, Parent, clone_process, new_mount_namespace},
    exec,
};

use super::{Step, read_spec};

pub(crate) const TASK: &str = "clone";
pub(crate) const GO: &str = "go";

/// What the command may take before it is killed.
const LIMIT: Timespec = Timespec {
    tv_sec: 10,
    tv_nsec: 0,
};
const NAMESPACES: i32 = libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    /// Holds the root directory `lower` and the empty `rounds`.
    pub(crate) folder: PathBuf,
    /// In the root directory: what is executed, and under which name.
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
    /// What it prints.
    pub(crate) expected: String,
}

/// What one round answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Nanoseconds(u64),
    Failed(String),
}

pub(super) fn serve() -> io::Result<()> {
    let spec: Spec = read_spec()?;
    prepare(&spec)?;
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let mut line = String::new();
    for number in 0_u64.. {
        line.clear();
        if input.read_line(&mut line)? == 0 || line.trim_end() != GO {
            break;
        }
        let answer = match round(&spec, number) {
            Ok(took) => Answer::Nanoseconds(took.as_nanos().try_into().unwrap_or(u64::MAX)),
            Err(error) => Answer::Failed(error.to_string()),
        };
        serde_json::to_writer(&mut output, &answer)?;
        output.write_all(b"\n")?;
        output.flush()?;
    }
    Ok(())
}

/// Once, for all rounds: copies of this mount namespace are private already.
fn prepare(spec: &Spec) -> io::Result<()> {
    new_mount_namespace().step("mount namespace")?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).step("private mounts")?;
    // Short relative names need no escaping in overlay options.
    std::env::set_current_dir(&spec.folder).step("folder")?;
    mount("tmpfs", "rounds", "tmpfs", MountFlags::empty(), None).step("tmpfs")
}

fn round(spec: &Spec, number: u64) -> io::Result<Duration> {
    let begun = Instant::now();
    let (output, input) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).step("pipe")?;
    let folder = format!("rounds/{number}");
    for name in ["", "/upper", "/work", "/root"] {
        fs::create_dir(format!("{folder}{name}")).step("folders of the round")?;
    }
    // Before the clone: in the new namespace nobody has a name yet.
    let maps = maps();
    let result = match clone_process(NAMESPACES, Parent::Caller).step("clone")? {
        Cloned::Child => become_command(spec, &folder, &maps, &input),
        Cloned::Parent(pid) => {
            drop(input);
            let result = first_output(&output, spec.expected.len());
            let took = begun.elapsed();
            let result = result.and_then(|seen| finish(&output, seen, spec).map(|()| took));
            reap(pid)?;
            result
        }
    };
    fs::remove_dir_all(&folder).step("folders of the round")?;
    result
}

/// The child. What went wrong takes the way of the output.
fn become_command(spec: &Spec, folder: &str, maps: &(String, String), output: &OwnedFd) -> ! {
    let Err(error) = enter_and_execute(spec, folder, maps, output);
    // The parent notices the missing text by itself.
    let _lost = rustix::io::write(output, error.to_string().as_bytes());
    std::process::exit(1)
}

fn enter_and_execute(
    spec: &Spec,
    folder: &str,
    (users, groups): &(String, String),
    output: &OwnedFd,
) -> io::Result<Infallible> {
    fs::write("/proc/self/setgroups", "deny").step("setgroups")?;
    fs::write("/proc/self/uid_map", users).step("map of users")?;
    fs::write("/proc/self/gid_map", groups).step("map of groups")?;
    let options = format!("lowerdir=lower,upperdir={folder}/upper,workdir={folder}/work,userxattr");
    let options = CString::new(options).step("overlay")?;
    let root = format!("{folder}/root");
    let flags = MountFlags::NODEV;
    mount("overlay", &root, "overlay", flags, options.as_c_str()).step("overlay")?;
    std::env::set_current_dir(&root).step("pivot_root")?;
    pivot_root(".", ".").step("pivot_root")?;
    unmount(".", UnmountFlags::DETACH).step("detach the host")?;
    std::env::set_current_dir("/").step("pivot_root")?;
    let program = File::open(&spec.program).step(&spec.program)?;
    exec::place_at(output.as_fd(), 1).step("standard output")?;
    let words: Result<Vec<CString>, _> =
        spec.arguments.iter().map(|a| CString::new(&**a)).collect();
    let words = words.step("arguments")?;
    let words: Vec<_> = words.iter().map(CString::as_c_str).collect();
    Err(exec::execute_file(program.as_fd(), &words, &[])).step("exec")
}

/// Root of the new user namespace is who we are: a map of one id needs nobody's help.
fn maps() -> (String, String) {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    (format!("0 {user} 1"), format!("0 {group} 1"))
}

fn first_output(output: &OwnedFd, enough: usize) -> io::Result<Vec<u8>> {
    let mut seen = Vec::new();
    let mut part = [0; 512];
    while seen.len() < enough {
        match read_within_limit(output, &mut part)? {
            0 => break,
            length => seen.extend_from_slice(&part[..length]),
        }
    }
    Ok(seen)
}

/// Reads the rest: the command has ended when there is no more.
fn finish(output: &OwnedFd, mut seen: Vec<u8>, spec: &Spec) -> io::Result<()> {
    let mut part = [0; 512];
    loop {
        match read_within_limit(output, &mut part)? {
            0 => break,
            length => seen.extend_from_slice(&part[..length]),
        }
        if seen.len() > part.len() {
            break;
        }
    }
    if seen == spec.expected.as_bytes() {
        Ok(())
    } else {
        let said = String::from_utf8_lossy(&seen).into_owned();
        Err(io::Error::other(said))
    }
}

fn read_within_limit(output: &OwnedFd, part: &mut [u8]) -> io::Result<usize> {
    let mut files = [PollFd::new(output, PollFlags::IN)];
    if rustix::io::retry_on_intr(|| poll(&mut files, Some(&LIMIT)))? == 0 {
        return Err(io::Error::other("the command said nothing in time"));
    }
    Ok(rustix::io::retry_on_intr(|| {
        rustix::io::read(output, &mut *part)
    })?)
}

/// Killed first, so that the wait is short whatever it does.
fn reap(pid: i32) -> io::Result<()> {
    let pid = Pid::from_raw(pid).ok_or_else(|| io::Error::other("a pid out of range"))?;
    kill_process(pid, Signal::KILL).step("kill")?;
    waitpid(Some(pid), WaitOptions::empty()).step("wait")?;
    Ok(())
}
