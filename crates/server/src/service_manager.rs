//! Reports the state of the server to the service manager (`sd_notify(3)`): a unit of `Type=notify`
//! counts as started when sandboxes can be created, not when the process exists.

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

/// Where the service manager listens. A process with this variable can report for the unit, so the
/// programs that the server starts must not inherit it.
pub const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";

/// How often a start asks for more time, and for how much.
const EXTENSION_INTERVAL: Duration = Duration::from_secs(10);
const EXTENSION: Duration = Duration::from_mins(1);
/// Then the unit's own timeout applies. The first start builds the template `base`.
const MAX_EXTENSIONS: u32 = 60;
/// The manager always reads.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(2);

/// Cheap to clone. Without a manager nothing is sent.
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
                eprintln!("warning: the service manager at {address} cannot be notified: {error}");
                Self::default()
            }
        }
    }

    /// What the server is doing, for people.
    pub(crate) async fn status(&self, what: &str) {
        self.notify(&format!("STATUS={}\n", one_line(what))).await;
    }

    pub(crate) async fn ready(&self, what: &str) {
        self.notify(&format!("READY=1\nSTATUS={}\n", one_line(what)))
            .await;
    }

    pub(crate) async fn stopping(&self) {
        self.notify("STOPPING=1\nSTATUS=stopping; sandboxes go on\n")
            .await;
    }

    /// Asks for more time until the returned value is dropped.
    pub(crate) fn ask_for_time(&self) -> Asking {
        let asking = self.socket.is_some();
        Asking(asking.then(|| tokio::spawn(self.clone().ask(EXTENSION_INTERVAL, MAX_EXTENSIONS))))
    }

    async fn ask(self, every: Duration, times: u32) {
        let more = format!("EXTEND_TIMEOUT_USEC={}\n", EXTENSION.as_micros());
        for _ in 0..times {
            self.notify(&more).await;
            tokio::time::sleep(every).await;
        }
    }

    async fn notify(&self, lines: &str) {
        let Some(socket) = &self.socket else {
            return;
        };
        let sent = timeout(NOTIFY_TIMEOUT, socket.send(lines.as_bytes())).await;
        let error = match sent {
            Ok(Ok(_)) => return,
            Ok(Err(error)) => error,
            Err(elapsed) => elapsed.into(),
        };
        tracing::warn!(%error, "could not notify the service manager");
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

/// Each line is a statement of its own.
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
    async fn it_is_notified_at_a_path_and_at_an_abstract_name() {
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
    async fn a_status_text_cannot_contain_another_statement() {
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
    async fn without_a_manager_nothing_is_sent() {
        ServiceManager::at(None).ready("").await;
        ServiceManager::at(Some("".as_ref())).ready("").await;
        ServiceManager::at(Some("/nowhere/at/all".as_ref()))
            .ready("")
            .await;
    }
}
