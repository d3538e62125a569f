//! fork and exec.
//!
//! `posix_spawn` can neither change the user nor take a controlling terminal, so this forks. envd
//! has few pages of its own, which makes that cheap. Other threads may hold any lock at the moment
//! of the fork: the child only makes system calls on memory that was prepared before.

#![expect(
    unsafe_code,
    reason = "fork, execve and signal dispositions have no safe wrapper"
)]

use std::{
    ffi::{CStr, c_char},
    io, mem,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd},
    ptr,
};

use rustix::{
    fs::{Mode, OFlags, fchown},
    pipe::{PipeFlags, pipe_with},
    process::{Pid, Resource},
    pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

use super::{command::Command, disposition, group::Group};

/// envd must not be the first that the out-of-memory killer takes.
const OOM_SCORE: &[u8] = b"100";
const OOM_FILE: &CStr = c"/proc/self/oom_score_adj";

pub(super) enum Stdio {
    Pipes { stdin: bool },
    Terminal { cols: u16, rows: u16 },
}

/// Our ends. All are non-blocking.
pub(super) enum StdioEnds {
    Pipes {
        stdin: Option<OwnedFd>,
        stdout: OwnedFd,
        stderr: OwnedFd,
    },
    Terminal {
        master: OwnedFd,
    },
}

pub(super) struct Child {
    pub(super) pid: Pid,
    /// Of which it is a member, or with a terminal the leader.
    pub(super) group: Pid,
    pub(super) ends: StdioEnds,
    /// Ends when the program runs; brings the step and errno when it does not.
    pub(super) exec_status: OwnedFd,
}

/// Where the child failed, for the message.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Step {
    Session = 1,
    Streams,
    Credentials,
    Directory,
    Exec,
}

/// What the child reports when it fails.
pub(super) const REPORT: usize = 5;

pub(super) fn describe(report: [u8; REPORT]) -> io::Error {
    let [step, errno @ ..] = report;
    let error = io::Error::from_raw_os_error(i32::from_ne_bytes(errno));
    let what = match step {
        1 => "making a session or joining a group",
        2 => "connecting its streams",
        3 => "changing the user",
        4 => "entering the working directory",
        _ => "executing the program",
    };
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// Must be followed by entering the pid into the table before the next await.
pub(super) fn spawn(command: &Command, stdio: &Stdio) -> io::Result<Child> {
    let (status_ours, status_theirs) = pipe_with(PipeFlags::CLOEXEC)?;
    nonblocking(&status_ours)?;

    let (ends, theirs, terminal) = match *stdio {
        Stdio::Pipes { stdin } => {
            let (ends, theirs) = pipes(stdin)?;
            (ends, theirs, false)
        }
        Stdio::Terminal { cols, rows } => {
            let (master, slave) = terminal(cols, rows)?;
            // Programs reopen their terminal by name; devpts gave it to root.
            let _refused = fchown(&slave, Some(command.uid), None);
            let again = || slave.try_clone();
            (
                StdioEnds::Terminal { master },
                [again()?, again()?, slave],
                true,
            )
        }
    };

    let pointers = |strings: &[std::ffi::CString]| -> Vec<*const c_char> {
        strings
            .iter()
            .map(|s| s.as_ptr())
            .chain([ptr::null()])
            .collect()
    };
    let (args, env) = (pointers(&command.args), pointers(&command.env));
    let plan = Plan {
        command,
        args: &args,
        env: &env,
        stdio: [
            theirs[0].as_raw_fd(),
            theirs[1].as_raw_fd(),
            theirs[2].as_raw_fd(),
        ],
        terminal,
        status: status_theirs.as_raw_fd(),
    };

    // No handler of ours may run in the children: the memory of one is a copy but its pipes are
    // not, and the other's is ours.
    let blocked = block_signals();
    let forked = plan.fork();
    restore_signals(&blocked);
    let (pid, group) = forked?;
    Ok(Child {
        pid,
        group,
        ends,
        exec_status: status_ours,
    })
}

fn pipes(stdin: bool) -> io::Result<(StdioEnds, [OwnedFd; 3])> {
    let (stdin, child_in) = if stdin {
        let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
        nonblocking(&ours)?;
        (Some(ours), theirs)
    } else {
        let null = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        (None, null)
    };
    let (stdout, child_out) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stderr, child_err) = pipe_with(PipeFlags::CLOEXEC)?;
    nonblocking(&stdout)?;
    nonblocking(&stderr)?;
    Ok((
        StdioEnds::Pipes {
            stdin,
            stdout,
            stderr,
        },
        [child_in, child_out, child_err],
    ))
}

fn terminal(cols: u16, rows: u16) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags)?;
    unlockpt(&master)?;
    let slave = ioctl_tiocgptpeer(&master, flags)?;
    tcsetwinsize(&master, window(cols, rows))?;
    nonblocking(&master)?;
    Ok((master, slave))
}

pub(super) fn window(cols: u16, rows: u16) -> Winsize {
    Winsize {
        ws_col: cols,
        ws_row: rows,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

fn nonblocking(fd: &OwnedFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    Ok(rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)?)
}

/// Everything that the child touches.
struct Plan<'a> {
    command: &'a Command,
    args: &'a [*const c_char],
    env: &'a [*const c_char],
    stdio: [RawFd; 3],
    terminal: bool,
    status: RawFd,
}

impl Plan<'_> {
    /// The child, and the group that it is in.
    fn fork(&self) -> io::Result<(Pid, Pid)> {
        let group = (!self.terminal).then(Group::new).transpose()?;
        // SAFETY: the child calls only `Plan::run`, which makes system calls and never returns.
        let forked = unsafe { libc::fork() };
        if forked == 0 {
            self.run(group.as_ref());
        }
        let failed = io::Error::last_os_error();
        let pid = Pid::from_raw(forked).filter(|_| forked > 0).ok_or(failed)?;
        let Some(group) = group else {
            return Ok((pid, pid));
        };
        // Before the group is dropped it must have its member.
        let _done_by_itself = group.join(Some(pid));
        Ok((pid, group.id()))
    }

    /// Runs in the child.
    fn run(&self, group: Option<&Group>) -> ! {
        let (step, errno) = self.try_run(group);
        let mut report = [step as u8, 0, 0, 0, 0];
        report[1..].copy_from_slice(&errno.to_ne_bytes());
        // SAFETY: writes five bytes of this stack to a descriptor of this process, then leaves it.
        unsafe {
            libc::write(self.status, report.as_ptr().cast(), report.len());
            libc::_exit(127)
        }
    }

    /// Comes back only with the step that failed.
    fn try_run(&self, group: Option<&Group>) -> (Step, i32) {
        if let Some(Err(error)) = group.map(|group| group.join(None)) {
            return (Step::Session, error.raw_os_error());
        }
        // SAFETY: plain system calls on descriptors that are open in this process and on memory
        // that lives until the exec. Dispositions go back to their defaults before the mask does.
        unsafe {
            if self.terminal && libc::setsid() == -1 {
                return (Step::Session, errno());
            }
            for (target, fd) in (0..).zip(self.stdio) {
                if libc::dup2(fd, target) == -1 {
                    return (Step::Streams, errno());
                }
            }
            if self.terminal && libc::ioctl(0, libc::TIOCSCTTY, 0) == -1 {
                return (Step::Session, errno());
            }
            disposition::all_to_default();
            let mut none: libc::sigset_t = mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());

            let oom = libc::open(OOM_FILE.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
            if oom != -1 {
                libc::write(oom, OOM_SCORE.as_ptr().cast(), OOM_SCORE.len());
                libc::close(oom);
            }
            libc::umask(0o022);
        }
        if let Err(error) = self.become_user() {
            return (Step::Credentials, error.raw_os_error());
        }
        // SAFETY: as above; execve gets arrays that end with a null pointer.
        unsafe {
            if libc::chdir(self.command.cwd.as_ptr()) == -1 {
                return (Step::Directory, errno());
            }
            // Ours are close-on-exec already; this is for those that envd itself was given.
            libc::syscall(
                libc::SYS_close_range,
                3_u32,
                u32::MAX,
                libc::CLOSE_RANGE_CLOEXEC,
            );
            let mut error = libc::ENOENT;
            for program in &self.command.programs {
                libc::execve(program.as_ptr(), self.args.as_ptr(), self.env.as_ptr());
                error = errno();
                if !matches!(error, libc::ENOENT | libc::ENOTDIR | libc::EACCES) {
                    break;
                }
            }
            (Step::Exec, error)
        }
    }

    /// rustix makes the plain system calls here: the C library's would signal other threads.
    fn become_user(&self) -> rustix::io::Result<()> {
        let (uid, gid) = (self.command.uid, self.command.gid);
        // Our higher limit does no harm, should this be refused.
        let _refused = rustix::process::setrlimit(Resource::Nofile, self.command.descriptors);
        rustix::thread::set_thread_groups(&self.command.groups)?;
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)
    }
}

fn errno() -> i32 {
    // SAFETY: the C library's own pointer to this thread's errno is always valid.
    unsafe { *libc::__errno_location() }
}

fn block_signals() -> libc::sigset_t {
    // SAFETY: both sets are local; sigfillset initialises one, sigprocmask the other.
    unsafe {
        let mut all: libc::sigset_t = mem::zeroed();
        let mut before: libc::sigset_t = mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    }
}

fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: restores a mask that `block_signals` read.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut());
    }
}

/// Reads what there is, without waiting.
pub(super) fn read_now(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::io::retry_on_intr(|| {
        rustix::io::read(fd, &mut *buffer)
    })?)
}
