//! Our end of `soulbox-init`'s fork server (`crates/init/src/fork_server.rs`), which starts inits
//! without executing a program for each.
//!
//! It is started when the first init is wanted, and again when it was killed. It ends with us: its
//! socket closes.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::CommandExt as _,
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use parking_lot::Mutex;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
    sockopt::{Timeout, set_socket_timeout},
};
use rustix::process::{Pid, WaitOptions, waitpid};
use soulbox_types::guest::FORK_SERVER;

/// A fork takes a part of a millisecond; a machine under memory pressure may need seconds.
const ANSWER_LIMIT: Duration = Duration::from_secs(8);
/// After a fork server died, for inits that nobody knows.
const STRANGERS_LOOKS: u32 = 5;
const STRANGERS_PAUSE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct ForkServer {
    init: PathBuf,
    running: Mutex<Option<Running>>,
}

/// Why there is no new init.
#[derive(Debug)]
pub(crate) enum Unforked {
    Failed(io::Error),
    /// It died before it answered, perhaps after it had forked. With other streams it can be tried
    /// again: an init that nobody knows may have got these.
    ServerGone(io::Error),
}

impl Unforked {
    pub(crate) fn into_io(self) -> io::Error {
        match self {
            Self::Failed(error) | Self::ServerGone(error) => error,
        }
    }
}

#[derive(Debug)]
struct Running {
    socket: OwnedFd,
    process: Child,
}

impl ForkServer {
    pub(crate) fn new(init: PathBuf) -> Self {
        Self {
            init,
            running: Mutex::new(None),
        }
    }

    /// The pid of a new init with these as standard input and output, a child of this process.
    /// Blocking.
    pub(crate) fn fork(&self, input: &OwnedFd, output: &OwnedFd) -> Result<i32, Unforked> {
        let mut running = self.running.lock();
        let server = match running.take() {
            Some(server) => server,
            None => Running::start(&self.init).map_err(Unforked::Failed)?,
        };
        match server.ask(input.as_fd(), output.as_fd()) {
            Ok(answer) => {
                *running = Some(server);
                into_pid(answer).map_err(Unforked::Failed)
            }
            Err(error) => {
                tracing::info!(%error, "the fork server of soulbox-init is gone; the next start begins another");
                drop(server);
                reap_strangers();
                Err(Unforked::ServerGone(error))
            }
        }
    }

    /// No init is started from here on without starting another fork server. Blocking.
    pub(crate) fn stop(&self) {
        *self.running.lock() = None;
    }
}

impl Running {
    fn start(init: &PathBuf) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let (socket, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        for direction in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&socket, direction, Some(ANSWER_LIMIT))?;
        }
        // No pre_exec here: the standard library then uses posix_spawn, which does not copy the
        // server's page tables.
        let process = Command::new(init)
            .arg(FORK_SERVER)
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            // What inits have to say comes as status; this is for their panics.
            .stderr(Stdio::inherit())
            .process_group(0)
            .spawn()?;
        Ok(Self { socket, process })
    }

    fn ask(&self, input: BorrowedFd<'_>, output: BorrowedFd<'_>) -> io::Result<i32> {
        let streams = [input, output];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&streams)) {
            return Err(io::Error::other("no room for two descriptors"));
        }
        let question = &[IoSlice::new(&[0])];
        sendmsg(&self.socket, question, &mut control, SendFlags::NOSIGNAL)?;
        let mut answer = [0; 4];
        let mut nothing = RecvAncillaryBuffer::default();
        let parts = &mut [IoSliceMut::new(&mut answer)];
        let received = recvmsg(&self.socket, parts, &mut nothing, RecvFlags::empty())?;
        if received.bytes == answer.len() {
            Ok(i32::from_ne_bytes(answer))
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It would end by itself with its socket, but may be the reason why it is dropped.
        let _gone_already = self.process.kill();
        if let Err(error) = self.process.wait() {
            tracing::warn!(%error, "the fork server of soulbox-init could not be waited for");
        }
    }
}

/// Waits for inits of ours whose pid nobody was told: one that a fork server had forked when it was
/// killed ends, its input being closed, and would stay a zombie. Those that somebody watches are
/// waited for at once by whoever does.
fn reap_strangers() {
    let looking = std::thread::Builder::new().name("sbx-reap".to_owned());
    let started = looking.spawn(|| {
        let mut before = Vec::new();
        for _ in 0..STRANGERS_LOOKS {
            std::thread::sleep(STRANGERS_PAUSE);
            let dead = dead_inits();
            for pid in dead.iter().filter(|pid| before.contains(*pid)) {
                // Somebody may have been quicker after all.
                let _reaped = waitpid(Some(*pid), WaitOptions::NOHANG);
            }
            before = dead;
        }
    });
    if let Err(error) = started {
        tracing::warn!(%error, "an init that a killed fork server left may stay as a zombie");
    }
}

/// Children of this process that have ended and were not waited for.
fn dead_inits() -> Vec<Pid> {
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let own = std::process::id().to_string();
    let is_one = |stat: String| {
        let (before, after) = stat.rsplit_once(')')?;
        let mut fields = after.split_ascii_whitespace();
        let dead = fields.next()? == "Z" && fields.next()? == own;
        (dead && before.ends_with("(soulbox-init")).then_some(())
    };
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| is_one(stat).is_some())
    })
    .filter_map(Pid::from_raw)
    .collect()
}

fn into_pid(answer: i32) -> io::Result<i32> {
    if answer > 0 {
        Ok(answer)
    } else {
        Err(io::Error::from_raw_os_error(-answer))
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Read as _, path::Path};

    use rustix::{
        pipe::{PipeFlags, pipe_with},
        process::{Signal, kill_process},
    };

    use super::*;

    /// What an init without a prepared slot says, read to its end; then it is reaped.
    fn last_words(server: &ForkServer) -> String {
        let (their_input, input) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let (output, their_output) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let pid = server.fork(&their_input, &their_output).unwrap();
        drop((input, their_input, their_output));
        let mut said = String::new();
        File::from(output).read_to_string(&mut said).unwrap();
        let status = waitpid(Pid::from_raw(pid), WaitOptions::empty()).unwrap();
        assert!(status.is_some(), "it is our child");
        said
    }

    fn pid_of(server: &ForkServer) -> Pid {
        let running = server.running.lock();
        Pid::from_child(&running.as_ref().unwrap().process)
    }

    fn is_there(pid: Pid) -> bool {
        Path::new(&format!("/proc/{}", pid.as_raw_nonzero())).exists()
    }

    #[test]
    fn inits_are_forked_by_one_process_which_is_started_again_when_it_was_killed() {
        let folder = tempfile::tempdir().unwrap();
        let programs = soulbox_guest_programs::install(&folder.path().join("bin")).unwrap();
        let server = ForkServer::new(programs.init);
        assert!(last_words(&server).contains("parse the prepared slot"));
        let first = pid_of(&server);
        assert!(last_words(&server).contains("parse the prepared slot"));
        assert_eq!(pid_of(&server), first, "one serves all");

        kill_process(first, Signal::KILL).unwrap();
        let (input, output) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let gone = server.fork(&input, &output);
        assert!(matches!(gone, Err(Unforked::ServerGone(_))), "{gone:?}");
        assert!(last_words(&server).contains("parse the prepared slot"));
        let second = pid_of(&server);
        assert_ne!(second, first);
        assert!(!is_there(first), "it was reaped");

        server.stop();
        assert!(!is_there(second));
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error_and_nothing_hangs() {
        let server = ForkServer::new("/nonexistent/soulbox-init".into());
        let (input, output) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let error = server.fork(&input, &output).unwrap_err().into_io();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
