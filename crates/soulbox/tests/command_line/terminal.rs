//! On a real pseudo-terminal: what `shell` does to it, and that it takes it back.

use std::{fs::File, os::fd::OwnedFd, process::Stdio, time::Duration};

use rustix::{
    fs::{Mode, OFlags, open},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, tcgetattr},
};
use tokio::{process::Child, time::timeout};

use super::{
    LIMIT,
    peer::{Peer, Script},
    soulbox,
};

struct Terminal {
    _master: OwnedFd,
    slave: OwnedFd,
}

impl Terminal {
    fn open() -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave = open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        Self {
            _master: master,
            slave,
        }
    }

    fn stdio(&self) -> Stdio {
        Stdio::from(File::from(self.slave.try_clone().unwrap()))
    }

    fn is_raw(&self) -> bool {
        !tcgetattr(&self.slave)
            .unwrap()
            .local_modes
            .contains(LocalModes::ICANON)
    }

    async fn becomes_raw(&self) {
        let raw = async {
            while !self.is_raw() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(LIMIT, raw).await.expect("raw mode");
    }

    fn shell(&self, peer: &Peer) -> Child {
        soulbox(peer, &["shell"])
            .stdin(self.stdio())
            .stdout(self.stdio())
            .spawn()
            .unwrap()
    }
}

#[tokio::test]
async fn a_shell_that_ends_gives_the_terminal_back() {
    let peer = Peer::start(Script::Exit {
        stdout: "",
        stderr: "",
        code: 3,
    })
    .await;
    let terminal = Terminal::open();
    let status = timeout(LIMIT, terminal.shell(&peer).wait())
        .await
        .expect("it ends")
        .unwrap();
    assert_eq!(status.code(), Some(3));
    assert!(!terminal.is_raw());
    assert_eq!(peer.count("DELETE", "/sandboxes/iabc"), 1);
    assert_eq!(
        peer.bodies("/process.Process/Start")[0]["pty"]["size"]["cols"],
        80
    );
}

#[tokio::test]
async fn a_shell_that_is_terminated_gives_the_terminal_back_too() {
    let peer = Peer::start(Script::Hang { stdout: "" }).await;
    let terminal = Terminal::open();
    let mut child = terminal.shell(&peer);
    terminal.becomes_raw().await;
    let pid = child.id().unwrap().to_string();
    std::process::Command::new("kill")
        .args(["-TERM", &pid])
        .status()
        .unwrap();
    let status = timeout(LIMIT, child.wait())
        .await
        .expect("it ends")
        .unwrap();
    assert_eq!(status.code(), Some(143));
    assert!(!terminal.is_raw());
    assert_eq!(peer.count("DELETE", "/sandboxes/iabc"), 1);
}

#[tokio::test]
async fn a_shell_without_a_terminal_says_what_to_use_instead() {
    let peer = Peer::start(Script::Cut).await;
    let output = super::output(&peer, &["shell"]).await;
    assert_eq!(output.status.code(), Some(125));
    assert!(super::text(&output.stderr).contains("soulbox exec"));
    assert_eq!(peer.count("POST", "/v2/sandboxes"), 0);
}
