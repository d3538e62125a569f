//! A process's output, input and exit code, passed through.

use std::io::IsTerminal;

use anyhow::Result;
use bytes::Bytes;
use soulbox_client::{
    Envd, Error,
    envd::{
        input::InputKind,
        process::{Event, ProcessStream, PtySize},
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, stderr, stdin, stdout},
    signal::unix::{SignalKind, signal},
};

use crate::{report::warning, terminal};

/// envd's own chunks have this size.
const CHUNK: usize = 32 * 1024;

/// Whether our stdin is the command's: always when it is piped, on a terminal when asked for.
pub(crate) fn passes_stdin(interactive: bool) -> bool {
    interactive || !std::io::stdin().is_terminal()
}

/// Passes everything through until the process ends; returns what a shell would show as `$?`.
pub(crate) async fn pipe(envd: &Envd, mut process: ProcessStream, with_stdin: bool) -> Result<u8> {
    let pid = process.pid();
    let feeding = async {
        if with_stdin {
            feed_stdin(envd, pid).await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        code = drain(&mut process) => code,
        () = feeding => Ok(0),
    }
}

/// The same for a terminal, whose size follows ours; `size` is the one that it was made with.
pub(crate) async fn tty(envd: &Envd, mut process: ProcessStream, size: PtySize) -> Result<u8> {
    let pid = process.pid();
    let _raw = terminal::RawMode::enter()?;
    let typing = async {
        feed(envd, pid, InputKind::Pty).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        code = drain(&mut process) => code,
        () = typing => Ok(0),
        error = follow_size(envd, pid, size) => Err(error),
    }
}

/// Only the output.
pub(crate) async fn drain(process: &mut ProcessStream) -> Result<u8> {
    let (mut out, mut err) = (stdout(), stderr());
    while let Some(event) = process.next().await? {
        match event {
            Event::Stdout(bytes) | Event::Pty(bytes) => {
                out.write_all(&bytes).await?;
                out.flush().await?;
            }
            Event::Stderr(bytes) => {
                err.write_all(&bytes).await?;
                err.flush().await?;
            }
            Event::End(end) => return Ok(end.shell_status()),
        }
    }
    Err(Error::Protocol {
        what: "the stream ended before the process".to_owned(),
    }
    .into())
}

async fn feed_stdin(envd: &Envd, pid: u32) {
    if !feed(envd, pid, InputKind::Stdin).await {
        return;
    }
    // The process may have ended meanwhile; its exit code says more.
    match envd.close_stdin(pid).await {
        Err(error) if !error.is_not_found() => {
            warning(&format!("the command's input could not be closed: {error}"));
        }
        _ => {}
    }
}

/// Sends our stdin until it ends; `false` when the process takes no more.
async fn feed(envd: &Envd, pid: u32, kind: InputKind) -> bool {
    let input = envd.input(pid, kind);
    let mut source = stdin();
    let mut buffer = vec![0; CHUNK];
    loop {
        match source.read(&mut buffer).await {
            Ok(0) => break,
            Ok(length) => {
                if !input.send(Bytes::copy_from_slice(&buffer[..length])).await {
                    break;
                }
            }
            Err(error) => {
                warning(&format!("standard input cannot be read: {error}"));
                break;
            }
        }
    }
    match input.finish().await {
        Ok(()) => true,
        // Processes need not read all of their input.
        Err(error) if error.is_not_found() || error.rpc_code().is_some() => false,
        Err(error) => {
            warning(&format!("the command's input broke off: {error}"));
            false
        }
    }
}

/// Returns only when the signal cannot be listened to.
async fn follow_size(envd: &Envd, pid: u32, mut known: PtySize) -> anyhow::Error {
    let mut changes = match signal(SignalKind::window_change()) {
        Ok(changes) => changes,
        Err(error) => return error.into(),
    };
    // The first look is for a change that came before we listened.
    loop {
        let size = terminal::size();
        if size != known && envd.resize(pid, size).await.is_ok() {
            known = size;
        }
        if changes.recv().await.is_none() {
            return std::future::pending().await;
        }
    }
}
