//! One connection, from its first byte to its last.

use std::{io, sync::Arc, time::Duration};

use russh::{MethodKind, MethodSet, SshId, server};
use soulbox_client::{Client, Envd};
use soulbox_types::Secret;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{HostKey, connection::Connection, flow::Gauge, flow::Throttled};

/// How long processes may take to be told that nobody is there any more.
const HANG_UP_LIMIT: Duration = Duration::from_secs(5);
const SERVER_ID: &str = concat!("SSH-2.0-SoulBox_", env!("CARGO_PKG_VERSION"));

/// Where sessions lead.
#[derive(Debug, Clone)]
pub struct Sandbox {
    pub client: Client,
    pub id: String,
    pub access_token: Option<Secret>,
}

impl Sandbox {
    pub(crate) fn envd(&self, user: &str) -> Envd {
        self.client
            .envd(&self.id, self.access_token.clone())
            .as_user(Some(user.to_owned()))
    }
}

/// Whether this is how a connection ends when its client is killed.
pub fn is_end(error: &russh::Error) -> bool {
    match error {
        russh::Error::Disconnect | russh::Error::HUP | russh::Error::RecvError => true,
        russh::Error::IO(error) => matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe
        ),
        _ => false,
    }
}

/// Speaks SSH on `stream` until the client leaves or `stop` resolves. Then every process of a session
/// that still runs gets a hangup.
pub async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    sandbox: Sandbox,
    key: &HostKey,
    stop: impl Future<Output = ()>,
) -> Result<(), russh::Error> {
    let config = server::Config {
        server_id: SshId::Standard(SERVER_ID.into()),
        methods: MethodSet::from([MethodKind::None].as_slice()),
        keys: vec![key.private().clone()],
        // The pipe ends with whoever holds its other end.
        inactivity_timeout: None,
        ..server::Config::default()
    };
    let gauge = Arc::new(Gauge::default());
    let ended = CancellationToken::new();
    let tasks = TaskTracker::new();
    let connection = Connection::new(sandbox, Arc::clone(&gauge), ended.clone(), tasks.clone());
    let stream = Throttled::new(stream, gauge);
    let running = async {
        let session = server::run_stream(Arc::new(config), stream, connection).await?;
        session.await
    };
    let result = tokio::select! {
        result = running => result,
        () = stop => Ok(()),
    };
    ended.cancel();
    tasks.close();
    // Whoever does not come to its end in time is left to the sandbox.
    tokio::time::timeout(HANG_UP_LIMIT, tasks.wait()).await.ok();
    Ok(result?)
}
