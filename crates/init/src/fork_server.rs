//! A `soulbox-init` that starts others like itself, by forking.
//!
//! A start that executes a program pays for the C library's look at the processor: some hundred
//! `cpuid` instructions, each of which leaves a virtual machine for its host. One process pays for
//! it once, and every copy of it is ready at once.
//!
//! The server sends one message for each: a byte, with the copy's standard input and output. The
//! answer is its pid, or a negative error number. The copy is the server's child, not ours. When the
//! server is gone, so are we.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::OwnedFd,
};

use rustix::{
    io::Errno,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendFlags,
        recvmsg, sendmsg,
    },
    process::setpgid,
    stdio::{dup2_stdin, dup2_stdout, stdin},
};
use soulbox_sys::clone::{Cloned, Parent, clone_process};

use crate::error::{Context, Failure};

/// Who we are after a fork.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A copy, with its own input and output.
    Copy,
    /// The fork server, when the server is gone.
    Done,
}

/// Returns in every copy, and once in the fork server, at its end.
pub(crate) fn serve() -> Result<Role, Failure> {
    let step = "fork server";
    while let Some(streams) = receive().at(step)? {
        let answer = match streams {
            Some([input, output]) => match clone_process(0, Parent::Grandparent) {
                Ok(Cloned::Child) => {
                    // Instead of the socket, which is the fork server's alone.
                    dup2_stdin(&input).at(step)?;
                    dup2_stdout(&output).at(step)?;
                    // Ctrl-C at the server's terminal is for the server.
                    setpgid(None, None).at(step)?;
                    return Ok(Role::Copy);
                }
                Ok(Cloned::Parent(pid)) => pid,
                Err(error) => -error.raw_os_error().unwrap_or(libc::EIO),
            },
            None => -libc::EINVAL,
        };
        if reply(answer).at(step).is_err() {
            break;
        }
    }
    Ok(Role::Done)
}

/// `None` at the end; `Some(None)` for a message without the two streams.
#[expect(clippy::option_option, reason = "private, and matched at once")]
fn receive() -> io::Result<Option<Option<[OwnedFd; 2]>>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let received = loop {
        let parts = &mut [IoSliceMut::new(&mut byte)];
        match recvmsg(stdin(), parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    let mut streams = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            streams.extend(descriptors);
        }
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    Ok(Some(streams.try_into().ok()))
}

fn reply(answer: i32) -> io::Result<()> {
    let text = answer.to_ne_bytes();
    let parts = &[IoSlice::new(&text)];
    let mut nothing = SendAncillaryBuffer::default();
    sendmsg(stdin(), parts, &mut nothing, SendFlags::NOSIGNAL)?;
    Ok(())
}
