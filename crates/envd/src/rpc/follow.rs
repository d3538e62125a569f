//! Streams a process to one client: start, output, end, and keepalives while it is silent.

use std::{rc::Rc, time::Duration};

use tokio::time::Instant;

use crate::{
    connect::{Call, Code, ConnectError, Sink},
    process::{Next, Process, Stream},
    proto::process::{DataEvent, Empty, EventResponse, ProcessEvent, StartEvent},
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

    let start = StartEvent { pid: process.id() };
    sink.send(&event(ProcessEvent {
        start: Some(start),
        ..Default::default()
    }))
    .await?;
    let mut next_keepalive = Instant::now() + keepalive;
    loop {
        let changed = output.changed();
        tokio::pin!(changed);
        changed.as_mut().enable();
        match output.next() {
            Next::Chunk(stream, bytes) => {
                let message = event(ProcessEvent {
                    data: Some(data(stream, &bytes)),
                    ..Default::default()
                });
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
                    let end = Some(exit.event());
                    return sink
                        .send(&event(ProcessEvent {
                            end,
                            ..Default::default()
                        }))
                        .await;
                }
                tokio::select! {
                    () = changed => {}
                    () = sink.closed() => return Ok(()),
                    () = &mut deadline => return Err(ConnectError::deadline()),
                    () = tokio::time::sleep_until(next_keepalive) => {
                        let alive = ProcessEvent { keepalive: Some(Empty {}), ..Default::default() };
                        sink.send(&event(alive)).await?;
                        next_keepalive = Instant::now() + keepalive;
                    }
                }
            }
        }
    }
}

fn event(event: ProcessEvent) -> EventResponse {
    EventResponse { event: Some(event) }
}

fn data(stream: Stream, bytes: &[u8]) -> DataEvent {
    let bytes = Some(bytes.to_vec());
    match stream {
        Stream::Stdout => DataEvent {
            stdout: bytes,
            ..Default::default()
        },
        Stream::Stderr => DataEvent {
            stderr: bytes,
            ..Default::default()
        },
        Stream::Terminal => DataEvent {
            pty: bytes,
            ..Default::default()
        },
    }
}
