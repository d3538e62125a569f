//! The connection file: where a kernel shall listen, and the key that its messages are signed with.

use std::{
    fs,
    io::{self, Write},
    net::TcpListener,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use serde::Serialize;

use crate::zmtp::Endpoint;

/// The five channels of a kernel, in the order of their names in the file.
const CHANNELS: usize = 5;

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) key: String,
    pub(crate) file: PathBuf,
    pub(crate) shell: Endpoint,
    pub(crate) iopub: Endpoint,
    pub(crate) control: Endpoint,
}

#[derive(Serialize)]
struct File<'a> {
    transport: &'a str,
    ip: &'a str,
    shell_port: u16,
    iopub_port: u16,
    stdin_port: u16,
    control_port: u16,
    hb_port: u16,
    key: &'a str,
    signature_scheme: &'a str,
    kernel_name: &'a str,
}

impl Connection {
    /// Unix sockets in the kernel's own folder: no port to collide with, and the folder's mode keeps
    /// others out.
    pub(crate) fn over_unix_sockets(folder: &Path, kernel_name: &str) -> io::Result<Self> {
        let base = folder.join("socket");
        let ip = base
            .to_str()
            .ok_or_else(|| io::Error::other("the state folder's name is not text"))?;
        let endpoint = |port: u16| Endpoint::Ipc(PathBuf::from(format!("{ip}-{port}")));
        Self::write(folder, kernel_name, "ipc", ip, [1, 2, 3, 4, 5], endpoint)
    }

    /// Loopback ports, for kernels that know nothing else. Another program may take a port between
    /// here and the kernel's own bind; the kernel then fails to start, and is started once more.
    pub(crate) fn over_loopback(folder: &Path, kernel_name: &str) -> io::Result<Self> {
        let mut ports = [0; CHANNELS];
        let mut reserved = Vec::with_capacity(CHANNELS);
        for port in &mut ports {
            let listener = TcpListener::bind(("127.0.0.1", 0))?;
            *port = listener.local_addr()?.port();
            reserved.push(listener);
        }
        Self::write(
            folder,
            kernel_name,
            "tcp",
            "127.0.0.1",
            ports,
            Endpoint::Tcp,
        )
    }

    fn write(
        folder: &Path,
        kernel_name: &str,
        transport: &str,
        ip: &str,
        ports: [u16; CHANNELS],
        endpoint: impl Fn(u16) -> Endpoint,
    ) -> io::Result<Self> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|e| io::Error::other(e.to_string()))?;
        let key = hex::encode(secret);
        let [shell_port, iopub_port, stdin_port, control_port, hb_port] = ports;
        let text = serde_json::to_vec(&File {
            transport,
            ip,
            shell_port,
            iopub_port,
            stdin_port,
            control_port,
            hb_port,
            key: &key,
            signature_scheme: "hmac-sha256",
            kernel_name,
        })?;
        let file = folder.join("connection.json");
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&file)?
            .write_all(&text)?;
        Ok(Self {
            key,
            file,
            shell: endpoint(shell_port),
            iopub: endpoint(iopub_port),
            control: endpoint(control_port),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_file_is_for_its_owner_only_and_names_every_channel() {
        let folder = tempfile::tempdir().unwrap();
        let connection = Connection::over_loopback(folder.path(), "ir").unwrap();
        let mode = fs::metadata(&connection.file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let file: serde_json::Value =
            serde_json::from_slice(&fs::read(&connection.file).unwrap()).unwrap();
        assert_eq!(file["signature_scheme"], "hmac-sha256");
        assert_eq!(file["key"].as_str().unwrap().len(), 64);
        assert_ne!(file["shell_port"], file["iopub_port"]);
    }

    #[test]
    fn unix_sockets_are_named_as_kernels_name_them() {
        let folder = tempfile::tempdir().unwrap();
        let connection = Connection::over_unix_sockets(folder.path(), "python").unwrap();
        assert_eq!(
            connection.iopub,
            Endpoint::Ipc(folder.path().join("socket-2"))
        );
    }
}
