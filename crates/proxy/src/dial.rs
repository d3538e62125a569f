//! A connection to a port inside, with retries: a server that was just started may need a moment until
//! it listens, and E2B's clients rely on about a second of that.

use std::time::Duration;

use soulbox_runtime::{DynStream, Error, Node};
use soulbox_types::Chain;

use crate::{LogThrottle, refusal::Refusal, route::Target, sandbox_tracker::SandboxStreams};

const RETRY_DELAYS: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(300),
    Duration::from_millis(400),
];
/// A listener inside with a full backlog leaves a connection attempt hanging.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) async fn dial(
    node: &dyn Node,
    target: &Target,
    sandbox: &SandboxStreams,
    failures: &LogThrottle,
) -> Result<DynStream, Refusal> {
    let not_found = || Refusal::NotFound(target.id.clone());
    tokio::select! {
        biased;
        () = sandbox.ended().cancelled() => Err(not_found()),
        result = dial_with_retries(node, target, failures) => result,
    }
}

async fn dial_with_retries(
    node: &dyn Node,
    target: &Target,
    failures: &LogThrottle,
) -> Result<DynStream, Refusal> {
    let Target { id, port } = target;
    let port_closed = || Refusal::PortClosed {
        id: id.clone(),
        port: *port,
    };
    let mut delays = RETRY_DELAYS.iter();
    loop {
        let attempt = tokio::time::timeout(ATTEMPT_TIMEOUT, node.dial(id, *port)).await;
        let error = match attempt {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => error,
            Err(_elapsed) => return Err(port_closed()),
        };
        match error {
            Error::SandboxNotFound(_) | Error::WrongState { .. } => {
                return Err(Refusal::NotFound(id.clone()));
            }
            Error::NoCapacity { .. } => return Err(Refusal::TooManyStreams(id.clone())),
            Error::PortClosed { .. } => {}
            error => {
                if let Some(suppressed) = failures.should_log() {
                    let error = Chain(&error);
                    tracing::warn!(sandbox_id = %id, port, %error, suppressed, "dialling failed");
                }
            }
        }
        match delays.next() {
            Some(delay) => tokio::time::sleep(*delay).await,
            None => return Err(port_closed()),
        }
    }
}
