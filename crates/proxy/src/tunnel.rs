//! After an upgrade (WebSocket or any other): copies bytes in both directions until both sides have
//! finished or the sandbox ends. Either side may finish writing and still read.

use std::{sync::Arc, time::Duration};

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use soulbox_types::{Chain, SandboxId};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::{activity::Activity, body::OpenStream};

/// Both sides have agreed already; only hyper's hand-over is left.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct Tunnel {
    pub(crate) id: SandboxId,
    pub(crate) client: OnUpgrade,
    pub(crate) ended: CancellationToken,
    pub(crate) activity: Arc<Activity>,
    pub(crate) idle_limit: Duration,
    pub(crate) open: OpenStream,
}

impl Tunnel {
    /// `sandbox` is the connection inside, once it is handed over.
    pub(crate) async fn run<S>(self, sandbox: impl Future<Output = hyper::Result<S>>)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let Self {
            id,
            client,
            ended,
            activity,
            idle_limit,
            open,
        } = self;
        let both = tokio::time::timeout(HAND_OVER_TIMEOUT, async {
            tokio::try_join!(client, sandbox)
        });
        let Some(both) = ended.run_until_cancelled(both).await else {
            open.was_cut();
            return;
        };
        let (client, mut sandbox) = match both {
            Ok(Ok(both)) => both,
            Ok(Err(error)) => {
                tracing::debug!(sandbox_id = %id, error = %Chain(&error), "an upgrade was not carried out");
                return;
            }
            Err(_elapsed) => {
                tracing::debug!(sandbox_id = %id, "an upgrade took too long");
                return;
            }
        };
        let mut client = TokioIo::new(client);
        tokio::select! {
            biased;
            () = ended.cancelled() => open.was_cut(),
            () = activity.idle(idle_limit) => open.was_cut(),
            // A reset is a normal end of a tunnel.
            _end = tokio::io::copy_bidirectional(&mut client, &mut sandbox) => {}
        }
    }
}
