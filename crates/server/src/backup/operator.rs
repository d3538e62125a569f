//! The socket in the data folder by which the operator's commands reach the server. Whoever may read
//! everything in the folder may use it: no API key opens it, and no port leads to it.
//!
//! A request is one line of JSON with a descriptor beside it: the folder that the backup goes into, as
//! its sender sees it. So the server needs no right to any other part of the file system, and a private
//! `/tmp` of a service does not matter. The answer is lines of JSON ([`Message`]); a sender that goes
//! away stops the backup.

use std::{
    cell::Cell,
    io::{self, IoSliceMut, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use fs_err as fs;
use parking_lot::Mutex;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};
use soulbox_backup::{Manifest, Progress};
use soulbox_types::Chain;
use tokio::{net::UnixListener, runtime::Handle};
use tokio_util::sync::CancellationToken;

use super::{
    live::{LiveBackup, LiveSource},
    take::take,
};

const SOCKET: &str = "operator.sock";
const REQUEST: &[u8] = b"{\"backup\":1}\n";
const BETWEEN_REPORTS: Duration = Duration::from_millis(100);
/// For a request to arrive, and for its sender to take a line of the answer.
const PATIENCE: Duration = Duration::from_secs(30);
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A line of the answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Message {
    Progress {
        done: u64,
        total: u64,
        what: String,
    },
    /// The backup's name in its folder, and what is in it.
    Done {
        name: String,
        manifest: Box<Manifest>,
    },
    Failed {
        why: String,
    },
}

#[derive(Debug)]
pub(crate) struct Operator {
    listener: UnixListener,
    path: PathBuf,
}

impl Operator {
    pub(crate) fn bind(data_dir: &Path) -> io::Result<Self> {
        let path = data_dir.join(SOCKET);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let folder = fs::File::open(data_dir)?;
        let listener = UnixListener::bind(short(&folder))?;
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        Ok(Self { listener, path })
    }

    /// Until `stop`.
    pub(crate) async fn serve(self, source: LiveSource, stop: CancellationToken) {
        let alone = Arc::new(Mutex::new(()));
        let mut sessions = tokio::task::JoinSet::new();
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = self.listener.accept() => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "the operator's socket does not work");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let own = rustix::process::geteuid().as_raw();
            if !stream.peer_cred().is_ok_and(|peer| peer.uid() == own) {
                tracing::warn!("somebody else used the operator's socket");
                continue;
            }
            let (source, alone, stop) = (source.clone(), Arc::clone(&alone), stop.clone());
            let runtime = Handle::current();
            sessions.spawn_blocking(move || {
                let served = stream
                    .into_std()
                    .and_then(|stream| session(&stream, source, &alone, &stop, runtime));
                if let Err(error) = served {
                    tracing::warn!(error = %Chain(&error), "a request of the operator failed");
                }
            });
            while sessions.try_join_next().is_some() {}
        }
        // They see that it stops, and remove what they have written.
        while sessions.join_next().await.is_some() {}
        fs::remove_file(&self.path).ok();
    }
}

fn session(
    stream: &UnixStream,
    source: LiveSource,
    alone: &Mutex<()>,
    stop: &CancellationToken,
    runtime: Handle,
) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let folder = receive(stream)?;
    let Some(_alone) = alone.try_lock() else {
        let why = "another backup is being taken: wait until it is done".to_owned();
        return say(stream, &Message::Failed { why });
    };
    // By the number of this process: programs that it starts must find it too.
    let dir = PathBuf::from(format!(
        "/proc/{}/fd/{}",
        rustix::process::getpid().as_raw_nonzero(),
        folder.as_raw_fd()
    ));
    let said = Cell::new(None::<Instant>);
    let watcher = |progress: Progress<'_>| {
        if stop.is_cancelled() {
            return false;
        }
        if said.get().is_some_and(|at| at.elapsed() < BETWEEN_REPORTS) {
            return true;
        }
        said.set(Some(Instant::now()));
        let message = Message::Progress {
            done: progress.done,
            total: progress.total,
            what: progress.what.to_owned(),
        };
        say(stream, &message).is_ok()
    };
    tracing::info!("taking a backup");
    let begun = Instant::now();
    let backup = LiveBackup::new(source, runtime);
    let message = match take(&backup, &dir, &watcher) {
        Ok((path, manifest)) => {
            let seconds = begun.elapsed().as_secs();
            tracing::info!(seconds, bytes = manifest.bytes(), "the backup is done");
            Message::Done {
                name: path
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned(),
                manifest: Box::new(manifest),
            }
        }
        Err(error) => {
            let why = if stop.is_cancelled() {
                "the server is stopping: start it again, or take the backup without it".to_owned()
            } else {
                // As its sender calls the folder.
                Chain(&*error)
                    .to_string()
                    .replace(&*dir.to_string_lossy(), "the backup's folder")
            };
            tracing::warn!(why, "no backup");
            Message::Failed { why }
        }
    };
    say(stream, &message)
}

fn say(mut stream: &UnixStream, message: &Message) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Takes the request and the descriptor beside it.
fn receive(stream: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut line = [0; 64];
    let received = recvmsg(
        stream,
        &mut [IoSliceMut::new(&mut line)],
        &mut beside,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let folder = beside.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    let strange = || {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "it is not a request for a backup",
        )
    };
    if line.get(..received.bytes) != Some(REQUEST) {
        return Err(strange());
    }
    folder.ok_or_else(strange)
}

/// Asks the server of a data folder for a backup. `None`: none listens there.
pub(super) fn request(data_dir: &Path, folder: impl AsFd) -> io::Result<Option<UnixStream>> {
    let opened = fs::File::open(data_dir)?;
    let stream = match UnixStream::connect(short(&opened)) {
        Ok(stream) => stream,
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let descriptors = [folder.as_fd()];
    if !beside.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("a descriptor could not be sent"));
    }
    let line = [io::IoSlice::new(REQUEST)];
    sendmsg(&stream, &line, &mut beside, SendFlags::empty())?;
    Ok(Some(stream))
}

/// The names of sockets are short; those of data folders need not be.
fn short(folder: &fs::File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd()))
}
