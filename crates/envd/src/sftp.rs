//! An SFTP server (version 3, as OpenSSH's clients speak it) on standard input and output.
//!
//! envd starts its own program under another name for it, as the user whose files are asked for: so
//! what may be done is up to the kernel, and `scp`, `sftp` and their relatives work in any template.
//! `soulbox ssh-proxy` connects its standard streams with an SSH channel.

mod attributes;
mod operations;
mod wire;

use std::io::{self, BufReader, BufWriter, Read, Write};

use operations::Server;
use wire::{MAX_PACKET, Packet};

/// What clients ask for in place of a program.
pub(crate) const COMMAND: &str = "soulbox:sftp-server";
/// What the program calls itself then.
pub(crate) const PROGRAM: &str = "soulbox-sftp-server";

/// Until the client closes its side.
pub(crate) fn serve(input: impl Read, output: impl Write) -> io::Result<()> {
    let mut input = BufReader::with_capacity(MAX_PACKET, input);
    let mut output = BufWriter::with_capacity(MAX_PACKET, output);
    let mut server = Server::default();
    while let Some(request) = Packet::read(&mut input)? {
        output.write_all(&server.answer(&request))?;
        // Clients send many requests at once and wait for none of them.
        if input.buffer().is_empty() {
            output.flush()?;
        }
    }
    output.flush()
}

#[cfg(test)]
mod tests;
