//! Tells the service manager how far the server is, as `sd_notify(3)` describes it: a unit of
//! `Type=notify` counts as started when sandboxes can be made, not when a process is there.

use std::{
    ffi::OsStr,
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram as Socket},
        },
    },
    sync::Arc,
    time::Duration,
};

use tokio::{net::UnixDatagram, task::JoinHandle, time::timeout};

/// Where it listens. Whoever has this variable speaks for the unit: programs that the server starts
/// must not have it.
pub const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";

/// A start tells that it is alive so often, and that it may take so much longer.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);
const MAY_TAKE: Duration = Duration::from_mins(1);
/// After these it is left to the unit's own limit. The first start makes the template `base`.
const SIGNS: u32 = 60;
/// It reads all the time.
const TELL_LIMIT: Duration = Duration::from_secs(2);

/// Cheap to clone. Without a manager nothing is told to anybody.
#[derive(Debug, Clone, Default)]
pub struct ServiceManager {
    socket: Option<Arc<UnixDatagram>>,
}

impl ServiceManager {
    /// At this address, as systemd writes it: a path, or a name after `@` that is no file's. Within
    /// a runtime.
    pub fn at(address: Option<&OsStr>) -> Self {
        let Some(address) = address.filter(|address| !address.is_empty()) else {
            return Self::default();
        };
        match connect(address) {
            Ok(socket) => Self {
                socket: Some(Arc::new(socket)),
            },
            Err(error) => {
                let address = address.display();
                eprintln!("warning: the service manager at {address} cannot be told: {error}");
                Self::default()
            }
        }
    }

    /// What the server is doing, for people.
    pub(crate) async fn status(&self, what: &str) {
        self.tell(&format!("STATUS={}\n", one_line(what))).await;
    }

    pub(crate) async fn ready(&self, what: &str) {
        self.tell(&format!("READY=1\nSTATUS={}\n", one_line(what)))
            .await;
    }

    pub(crate) async fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=stopping; sandboxes go on\n")
            .await;
    }

    /// Asks for more time while the returned value lives.
    pub(crate) fn ask_for_time(&self) -> Asking {
        let asking = self.socket.is_some();
        Asking(asking.then(|| tokio::spawn(self.clone().ask(SIGN_OF_LIFE, SIGNS))))
    }

    async fn ask(self, every: Duration, times: u32) {
        let more = format!("EXTEND_TIMEOUT_USEC={}\n", MAY_TAKE.as_micros());
        for _ in 0..times {
            self.tell(&more).await;
            tokio::time::sleep(every).await;
        }
    }

    async fn tell(&self, lines: &str) {
        let Some(socket) = &self.socket else {
            return;
        };
        let told = timeout(TELL_LIMIT, socket.send(lines.as_bytes())).await;
        let error = match told {
            Ok(Ok(_)) => return,
            Ok(Err(error)) => error,
            Err(elapsed) => elapsed.into(),
        };
        tracing::warn!(%error, "the service manager was not told");
    }
}

fn connect(address: &OsStr) -> io::Result<UnixDatagram> {
    let socket = Socket::unbound()?;
    match address.as_bytes().strip_prefix(b"@") {
        Some(name) => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        None => socket.connect(address)?,
    }
    socket.set_nonblocking(true)?;
    UnixDatagram::from_std(socket)
}

/// A line begins a statement of its own.
fn one_line(text: &str) -> String {
    text.split(['\n', '\r']).collect::<Vec<_>>().join(" ")
}

#[derive(Debug)]
pub(crate) struct Asking(Option<JoinHandle<()>>);

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(asking) = &self.0 {
            asking.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn heard(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 512];
        let read = timeout(Duration::from_secs(10), socket.recv(&mut buffer));
        let length = read.await.unwrap().unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    #[tokio::test]
    async fn it_is_told_at_a_path_and_at_an_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        let manager = ServiceManager::at(Some(path.as_os_str()));
        manager.ready("on http://127.0.0.1:3000").await;
        assert_eq!(
            heard(&listener).await,
            "READY=1\nSTATUS=on http://127.0.0.1:3000\n"
        );

        let name = format!("soulbox-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let listener = Socket::bind_addr(&address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = UnixDatagram::from_std(listener).unwrap();
        let manager = ServiceManager::at(Some(format!("@{name}").as_ref()));
        manager.stopping().await;
        assert!(heard(&listener).await.starts_with("STOPPING=1\n"));
    }

    #[tokio::test]
    async fn what_people_read_cannot_speak_for_the_server() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        let manager = ServiceManager::at(Some(path.as_os_str()));
        manager.status("no room\nREADY=1").await;
        assert_eq!(heard(&listener).await, "STATUS=no room READY=1\n");
    }

    #[tokio::test]
    async fn a_start_asks_for_time_until_it_is_over_and_not_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        let manager = ServiceManager::at(Some(path.as_os_str()));
        let asking = manager.ask_for_time();
        assert_eq!(heard(&listener).await, "EXTEND_TIMEOUT_USEC=60000000\n");
        let task = asking.0.as_ref().unwrap().abort_handle();
        drop(asking);
        while !task.is_finished() {
            tokio::task::yield_now().await;
        }

        manager.clone().ask(Duration::from_millis(1), 3).await;
        manager.status("the end").await;
        for _ in 0..3 {
            assert!(heard(&listener).await.starts_with("EXTEND_TIMEOUT_USEC="));
        }
        assert_eq!(heard(&listener).await, "STATUS=the end\n");
    }

    #[tokio::test]
    async fn without_a_manager_nobody_is_told() {
        ServiceManager::at(None).ready("").await;
        ServiceManager::at(Some("".as_ref())).ready("").await;
        ServiceManager::at(Some("/nowhere/at/all".as_ref()))
            .ready("")
            .await;
    }
}
