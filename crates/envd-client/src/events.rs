//! envd's events of a process: its start, its output, its end.

use base64::{Engine, engine::general_purpose::STANDARD};
use http_body_util::BodyExt;
use serde::Deserialize;
use soulbox_connect_frames::{Decoder, Frame};
use soulbox_outgoing::ChunkThrottle;
use tokio::time::timeout;

use crate::{
    Error, OutputStream, ProcessExit, Result,
    exchange::{Exchange, IDLE_LIMIT},
};

const WHAT: &str = "a command ran";
/// envd sends 32 KiB of output per event, a third more in base64. Whatever is inside cannot make us
/// hold more than this.
const MAX_FRAME: usize = 1 << 20;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Started { pid: u32 },
    Output(OutputStream, Vec<u8>),
    Ended(ProcessExit),
}

/// The events of one process, in order. Dropping it closes the connection.
#[derive(Debug)]
pub(crate) struct Events {
    exchange: Exchange,
    decoder: Decoder,
    /// Messages may be tiny, and say nothing.
    throttle: ChunkThrottle,
}

impl Events {
    pub(crate) fn new(exchange: Exchange) -> Self {
        Self {
            exchange,
            decoder: Decoder::new(MAX_FRAME),
            throttle: ChunkThrottle::default(),
        }
    }

    /// The next event. After [`Event::Ended`] there is none. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Result<Event> {
        loop {
            self.throttle.next().await;
            let frame = self.decoder.take_frame();
            match frame.map_err(|bad| Error::protocol(bad.to_string()))? {
                Some(Frame::Message(message)) => {
                    self.throttle.took(message.len());
                    if let Some(event) = parse(&message)? {
                        return Ok(event);
                    }
                }
                Some(Frame::End(end)) => return Err(ended_early(&end)),
                None => self.read().await?,
            }
        }
    }

    async fn read(&mut self) -> Result<()> {
        let body = self.exchange.response.body_mut();
        match timeout(IDLE_LIMIT, body.frame()).await {
            Err(_) => Err(Error::TooSlow {
                what: "hearing from the sandbox",
                limit: IDLE_LIMIT,
            }),
            Ok(None) => Err(Error::CutOff {
                what: WHAT,
                source: None,
            }),
            Ok(Some(Err(error))) => Err(Error::cut(WHAT, error)),
            Ok(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    self.throttle.took(data.len());
                    self.decoder.feed(data);
                }
                Ok(())
            }
        }
    }
}

/// The stream is over and the process's end was not reported.
fn ended_early(end: &[u8]) -> Error {
    #[derive(Deserialize)]
    struct End {
        #[serde(default)]
        error: Option<WireError>,
    }
    #[derive(Deserialize)]
    struct WireError {
        code: String,
        #[serde(default)]
        message: String,
    }
    match serde_json::from_slice::<End>(end) {
        Ok(End { error: Some(error) }) => Error::refused(&error.code, &error.message),
        Ok(End { error: None }) => Error::protocol("a process stream without an end"),
        Err(error) => Error::protocol(error),
    }
}

/// `None`: a keepalive, or something newer than this client.
fn parse(message: &[u8]) -> Result<Option<Event>> {
    #[derive(Deserialize)]
    struct Wire {
        event: WireEvent,
    }
    #[derive(Deserialize)]
    struct WireEvent {
        start: Option<WireStart>,
        data: Option<WireData>,
        end: Option<WireEnd>,
    }
    #[derive(Deserialize)]
    struct WireStart {
        #[serde(default)]
        pid: u32,
    }
    #[derive(Deserialize)]
    struct WireData {
        stdout: Option<String>,
        stderr: Option<String>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct WireEnd {
        #[serde(default)]
        exit_code: i32,
        #[serde(default)]
        exited: bool,
        #[serde(default)]
        status: String,
    }

    let wire: Wire = serde_json::from_slice(message).map_err(Error::protocol)?;
    if let Some(start) = wire.event.start {
        return Ok(Some(Event::Started { pid: start.pid }));
    }
    if let Some(end) = wire.event.end {
        return Ok(Some(Event::Ended(if end.exited {
            ProcessExit::Code(end.exit_code)
        } else {
            let name = end.status.strip_prefix("signal: ").unwrap_or(&end.status);
            ProcessExit::Signal(name.chars().take(100).collect())
        })));
    }
    let output = match wire.event.data {
        Some(WireData {
            stdout: Some(text), ..
        }) => (OutputStream::Stdout, text),
        Some(WireData {
            stderr: Some(text), ..
        }) => (OutputStream::Stderr, text),
        _ => return Ok(None),
    };
    let bytes = STANDARD.decode(output.1).map_err(Error::protocol)?;
    Ok(Some(Event::Output(output.0, bytes)))
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_event_is_understood() {
        let parse = |text: &str| parse(text.as_bytes()).unwrap();
        let started = parse(r#"{"event":{"start":{"pid":7}}}"#);
        assert_eq!(started, Some(Event::Started { pid: 7 }));
        let output = Event::Output(OutputStream::Stderr, b"hi".to_vec());
        assert_eq!(
            parse(r#"{"event":{"data":{"stderr":"aGk="}}}"#),
            Some(output)
        );
        let code = r#"{"event":{"end":{"exitCode":3,"exited":true,"status":"exit status 3"}}}"#;
        assert_eq!(parse(code), Some(Event::Ended(ProcessExit::Code(3))));
        let signal = r#"{"event":{"end":{"exitCode":-1,"status":"signal: killed"}}}"#;
        let killed = ProcessExit::Signal("killed".into());
        assert_eq!(parse(signal), Some(Event::Ended(killed)));
        assert_eq!(parse(r#"{"event":{"keepalive":{}}}"#), None);
    }

    #[test]
    fn nonsense_is_a_protocol_error() {
        for text in ["", "[]", r#"{"event":{"data":{"stdout":"!"}}}"#] {
            let parsed = parse(text.as_bytes());
            assert!(matches!(parsed, Err(Error::Protocol(_))), "{text}");
        }
    }
}
