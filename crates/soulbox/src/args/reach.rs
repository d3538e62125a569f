//! The ways to a server inside a sandbox.

use std::{net::IpAddr, str::FromStr};

use clap::Args;

use super::ServerArgs;

/// Reach a sandbox's ports on this machine.
///
/// Listens here and passes every connection on, whatever protocol it speaks: no host names, no
/// certificates and no root needed. Without LOCAL the number is the same on both sides; if it is
/// taken here, another one that is free. Ctrl-C ends it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox forward i3k4 8000                # http://127.0.0.1:8000
  soulbox forward i3k4 9000:8000 5432      # several at once
  soulbox forward i3k4 0:8000              # any port that is free here
  soulbox forward i3k4 8000 --address 0.0.0.0   # for others too: nobody asks them for a key

A connection to a port on which nothing listens inside is closed, and stderr says so. Exits with 1
when the sandbox ends.")]
pub(crate) struct ForwardArgs {
    /// Id, or the beginning of one
    pub sandbox: String,
    /// Port here (0: any) and port inside
    #[arg(required = true, value_name = "[LOCAL:]REMOTE")]
    pub ports: Vec<PortPair>,
    /// Where to listen
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub address: IpAddr,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Print the URL of a sandbox's port.
///
/// One that works from here: with a server that is reached by https, such as https://api.DOMAIN,
/// https://PORT-ID.DOMAIN; with one on this machine http://PORT-ID.sbx.localhost:3000, which
/// browsers and curl find without DNS. A server that is reached by a plain address has no names:
/// `soulbox forward` needs none.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox url i3k4 8000
  curl \"$(soulbox url i3k4 8000)/health\"")]
pub(crate) struct UrlArgs {
    /// Id, or the beginning of one
    pub sandbox: String,
    /// Port inside
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Open a sandbox's port in the browser.
///
/// Prints the URL as `soulbox url` does, and hands it to xdg-open or open where there is one.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox open i3k4 8000")]
pub(crate) struct OpenArgs {
    #[command(flatten)]
    pub url: UrlArgs,
}

/// Which port here leads to which inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PortPair {
    /// `None`: the same number, or a free one if it is taken.
    pub local: Option<u16>,
    pub remote: u16,
}

impl FromStr for PortPair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (local, remote) = match text.split_once(':') {
            Some((local, remote)) => (Some(number(local)?), number(remote)?),
            None => (None, number(text)?),
        };
        if remote == 0 {
            return Err("the port inside is a number from 1 to 65535".to_owned());
        }
        Ok(Self { local, remote })
    }
}

fn number(text: &str) -> Result<u16, String> {
    let port = text.parse().ok();
    port.filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
        .ok_or_else(|| format!("{text:?} is not a port: a number up to 65535"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_of_ports_is_written_as_docker_and_ssh_write_it() {
        let pair = |text: &str| {
            text.parse::<PortPair>()
                .map(|pair| (pair.local, pair.remote))
        };
        assert_eq!(pair("8000"), Ok((None, 8000)));
        assert_eq!(pair("9000:8000"), Ok((Some(9000), 8000)));
        assert_eq!(pair("0:80"), Ok((Some(0), 80)));
        for bad in [
            "", ":", "0", "80:", ":80", "80:0", "+80", "65536", "80:90:1", "http",
        ] {
            assert!(pair(bad).is_err(), "{bad}");
        }
    }
}
