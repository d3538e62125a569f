//! What a process's stream says.

use serde::de::Error;

use crate::process::{DataEvent, Empty, EndEvent, EventResponse, ProcessEvent, StartEvent};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    Stdout,
    Stderr,
    /// A terminal has only one.
    Pty,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Started { pid: u32 },
    Output(OutputStream, Vec<u8>),
    Ended(EndEvent),
}

impl Event {
    /// From a message in JSON. `None`: a keepalive, or something newer than this.
    pub fn parse(message: &[u8]) -> serde_json::Result<Option<Self>> {
        let event = serde_json::from_slice::<EventResponse>(message)?
            .event
            .ok_or_else(|| serde_json::Error::missing_field("event"))?;
        if let Some(start) = event.start {
            return Ok(Some(Self::Started { pid: start.pid }));
        }
        if let Some(end) = event.end {
            return Ok(Some(Self::Ended(end)));
        }
        let data = event.data.unwrap_or_default();
        let outputs = [
            (OutputStream::Stdout, data.stdout),
            (OutputStream::Stderr, data.stderr),
            (OutputStream::Pty, data.pty),
        ];
        let mut outputs = outputs.into_iter();
        Ok(outputs.find_map(|(stream, bytes)| Some(Self::Output(stream, bytes?))))
    }
}

impl From<Event> for EventResponse {
    fn from(event: Event) -> Self {
        let mut sent = ProcessEvent::default();
        match event {
            Event::Started { pid } => sent.start = Some(StartEvent { pid }),
            Event::Output(stream, bytes) => {
                let data = sent.data.insert(DataEvent::default());
                let of_stream = match stream {
                    OutputStream::Stdout => &mut data.stdout,
                    OutputStream::Stderr => &mut data.stderr,
                    OutputStream::Pty => &mut data.pty,
                };
                *of_stream = Some(bytes);
            }
            Event::Ended(end) => sent.end = Some(end),
        }
        Self { event: Some(sent) }
    }
}

impl EventResponse {
    pub fn keepalive() -> Self {
        let event = ProcessEvent {
            keepalive: Some(Empty {}),
            ..ProcessEvent::default()
        };
        Self { event: Some(event) }
    }
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_event_is_understood() {
        let parse = |text: &str| Event::parse(text.as_bytes()).unwrap();
        let started = parse(r#"{"event":{"start":{"pid":7}}}"#);
        assert_eq!(started, Some(Event::Started { pid: 7 }));
        let output = Event::Output(OutputStream::Stderr, b"hi".to_vec());
        assert_eq!(
            parse(r#"{"event":{"data":{"stdout":null,"stderr":"aGk="}}}"#),
            Some(output)
        );
        let code = r#"{"event":{"end":{"exitCode":3,"exited":true,"status":"exit status 3"}}}"#;
        assert_eq!(
            parse(code),
            Some(Event::Ended(EndEvent {
                exit_code: 3,
                exited: true,
                status: "exit status 3".to_owned(),
                error: None,
            }))
        );
        assert_eq!(parse(r#"{"event":{"keepalive":{}}}"#), None);
        assert_eq!(parse(r#"{"event":{"later":{}}}"#), None);
    }

    #[test]
    fn nonsense_is_no_event() {
        for text in ["", "[]", "{}", r#"{"event":{"data":{"stdout":"!"}}}"#] {
            assert!(Event::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
