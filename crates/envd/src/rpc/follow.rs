//! Streams a process to one client: start, output, end, and keepalives while it is silent.

use std::{rc::Rc, time::Duration};

use tokio::time::Instant;

use crate::{
    connect::{Call, Code, ConnectError, Sink},
    process::{Next, Process},
    proto::{Event, process::EventResponse},
};

/// The client may leave at any time: that only drops the subscription.
pub(super) async fn follow(
    call: &Call,
    process: &Rc<Process>,
    replay: bool,
    keepalive: Duration,
    sink: &Sink<EventResponse>,
) -> Result<(), ConnectError> {
    let output = process.subscribe(replay);
    let deadline = call.deadline_passed();
    tokio::pin!(deadline);

    let start = Event::Started { pid: process.id() };
    sink.send(&start.into()).await?;
    let mut next_keepalive = Instant::now() + keepalive;
    loop {
        let changed = output.changed();
        tokio::pin!(changed);
        changed.as_mut().enable();
        match output.next() {
            Next::Chunk(stream, bytes) => {
                let message = Event::Output(stream, bytes.to_vec()).into();
                tokio::select! {
                    sent = sink.send(&message) => sent?,
                    () = &mut deadline => return Err(ConnectError::deadline()),
                }
                next_keepalive = Instant::now() + keepalive;
            }
            Next::Lost => {
                return Err(ConnectError::new(
                    Code::ResourceExhausted,
                    "this client reads more slowly than another one of the same process, \
                     and output that it has not seen is gone",
                ));
            }
            Next::Nothing => {
                if let Some(exit) = process.end() {
                    return sink.send(&Event::Ended(exit.event()).into()).await;
                }
                tokio::select! {
                    () = changed => {}
                    () = sink.closed() => return Ok(()),
                    () = &mut deadline => return Err(ConnectError::deadline()),
                    () = tokio::time::sleep_until(next_keepalive) => {
                        sink.send(&EventResponse::keepalive()).await?;
                        next_keepalive = Instant::now() + keepalive;
                    }
                }
            }
        }
    }
}
