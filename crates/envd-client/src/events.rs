//! envd's events of a process: its start, its output, its end.

use http_body_util::BodyExt;
use soulbox_envd_protocol::{
    self as protocol, EndOfStream,
    frames::{Decoder, Frame},
};
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
    match serde_json::from_slice::<EndOfStream>(end) {
        Ok(EndOfStream { error: Some(error) }) => Error::refused(&error.code, &error.message),
        Ok(EndOfStream { error: None }) => Error::protocol("a process stream without an end"),
        Err(error) => Error::protocol(error),
    }
}

/// `None`: a keepalive, or something that a process without a terminal does not say.
fn parse(message: &[u8]) -> Result<Option<Event>> {
    let event = protocol::Event::parse(message).map_err(Error::protocol)?;
    Ok(event.and_then(|event| match event {
        protocol::Event::Started { pid } => Some(Event::Started { pid }),
        protocol::Event::Output(stream, bytes) => {
            let stream = match stream {
                protocol::OutputStream::Stdout => OutputStream::Stdout,
                protocol::OutputStream::Stderr => OutputStream::Stderr,
                protocol::OutputStream::Pty => return None,
            };
            Some(Event::Output(stream, bytes))
        }
        protocol::Event::Ended(end) => Some(Event::Ended(if end.exited {
            ProcessExit::Code(end.exit_code)
        } else {
            ProcessExit::Signal(end.cause().chars().take(100).collect())
        })),
    }))
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_a_code_or_a_signal() {
        let parse = |text: &str| parse(text.as_bytes()).unwrap();
        let code = r#"{"event":{"end":{"exitCode":3,"exited":true,"status":"exit status 3"}}}"#;
        assert_eq!(parse(code), Some(Event::Ended(ProcessExit::Code(3))));
        let signal = r#"{"event":{"end":{"exitCode":-1,"status":"signal: killed"}}}"#;
        let killed = ProcessExit::Signal("killed".into());
        assert_eq!(parse(signal), Some(Event::Ended(killed)));
    }

    #[test]
    fn what_only_a_terminal_says_is_passed_over() {
        let event = parse(br#"{"event":{"data":{"pty":"aGk="}}}"#).unwrap();
        assert_eq!(event, None);
    }

    #[test]
    fn nonsense_is_a_protocol_error() {
        for text in ["", "[]", r#"{"event":{"data":{"stdout":"!"}}}"#] {
            let parsed = parse(text.as_bytes());
            assert!(matches!(parsed, Err(Error::Protocol(_))), "{text}");
        }
    }
}
