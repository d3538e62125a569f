//! A connection to a port inside, with patience: a server that was just started may need a moment
//! until it listens, and E2B's clients count on about a second of it.

use std::time::Duration;

use soulbox_runtime::{DynStream, Error, Node};
use soulbox_types::Chain;

use crate::{Seldom, life::Life, refusal::Refusal, route::Target};

const WAITS: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(300),
    Duration::from_millis(400),
];
/// A listener inside with a full queue leaves a connection attempt hanging.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(5);

pub(crate) async fn dial(
    node: &dyn Node,
    target: &Target,
    life: &Life,
    failures: &Seldom,
) -> Result<DynStream, Refusal> {
    let not_found = || Refusal::NotFound(target.id.clone());
    tokio::select! {
        biased;
        () = life.ended().cancelled() => Err(not_found()),
        result = patiently(node, target, failures) => result,
    }
}

async fn patiently(
    node: &dyn Node,
    target: &Target,
    failures: &Seldom,
) -> Result<DynStream, Refusal> {
    let Target { id, port } = target;
    let port_closed = || Refusal::PortClosed {
        id: id.clone(),
        port: *port,
    };
    let mut waits = WAITS.iter();
    loop {
        let attempt = tokio::time::timeout(ATTEMPT_LIMIT, node.dial(id, *port)).await;
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
                if let Some(unsaid) = failures.now() {
                    let error = Chain(&error);
                    tracing::warn!(sandbox_id = %id, port, %error, unsaid, "dialling failed");
                }
            }
        }
        match waits.next() {
            Some(wait) => tokio::time::sleep(*wait).await,
            None => return Err(port_closed()),
        }
    }
}
