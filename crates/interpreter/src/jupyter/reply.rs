//! What kernels answer and broadcast, as far as an execution is concerned.

use serde::Deserialize;

use super::Incoming;
use crate::{
    kernel::{Event, Failure, Stream},
    mime::Bundle,
};

/// How a request ended, from the shell channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExecuteReply {
    Done,
    Aborted,
}

impl ExecuteReply {
    pub(crate) fn read(content: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Content {
            #[serde(default)]
            status: String,
        }
        match serde_json::from_slice::<Content>(content) {
            // Older kernels wrote "abort".
            Ok(content) if matches!(content.status.as_str(), "aborted" | "abort") => Self::Aborted,
            _ => Self::Done,
        }
    }
}

/// What a message on the broadcast channel means for the run that it belongs to.
#[derive(Debug)]
pub(crate) enum Broadcast {
    Event(Event),
    Idle,
    /// Not reported to clients.
    Other,
}

#[derive(Deserialize)]
struct Status {
    execution_state: String,
}

#[derive(Deserialize)]
struct Input {
    execution_count: u64,
}

#[derive(Deserialize)]
struct Output {
    name: String,
    text: String,
}

#[derive(Deserialize)]
struct Display {
    #[serde(default)]
    data: Bundle,
}

#[derive(Deserialize)]
struct ErrorContent {
    #[serde(default)]
    ename: String,
    #[serde(default)]
    evalue: String,
    #[serde(default)]
    traceback: Vec<String>,
}

impl Broadcast {
    /// Malformed content counts as nothing: the code that runs may write to the channel itself.
    pub(crate) fn read(message: &Incoming) -> Self {
        if message.cut {
            return Self::Event(Event::Failed(Failure::too_large(&message.kind)));
        }
        let content = message.content.as_slice();
        let event = match message.kind.as_str() {
            "status" => {
                return match serde_json::from_slice::<Status>(content) {
                    Ok(status) if status.execution_state == "idle" => Self::Idle,
                    _ => Self::Other,
                };
            }
            "execute_input" => serde_json::from_slice::<Input>(content)
                .map(|input| Event::Accepted(input.execution_count)),
            "stream" => serde_json::from_slice::<Output>(content).map(|output| {
                let stream = if output.name == "stderr" {
                    Stream::Stderr
                } else {
                    Stream::Stdout
                };
                Event::Text(stream, output.text)
            }),
            "display_data" => serde_json::from_slice::<Display>(content)
                .map(|display| Event::Result(display.data, false)),
            "execute_result" => serde_json::from_slice::<Display>(content)
                .map(|display| Event::Result(display.data, true)),
            "error" => serde_json::from_slice::<ErrorContent>(content).map(|raised| {
                Event::Failed(Failure {
                    name: raised.ename,
                    value: raised.evalue,
                    traceback: raised.traceback.concat(),
                })
            }),
            _ => return Self::Other,
        };
        event.map_or(Self::Other, Self::Event)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(kind: &str, content: &serde_json::Value) -> Broadcast {
        Broadcast::read(&Incoming {
            kind: kind.to_owned(),
            parent: String::new(),
            content: content.to_string().into_bytes(),
            cut: false,
        })
    }

    #[test]
    fn traceback_lines_are_joined_without_separator() {
        let content = json!({"ename": "E", "evalue": "v", "traceback": ["a", "b"]});
        let Broadcast::Event(Event::Failed(failure)) = read("error", &content) else {
            panic!("an error event");
        };
        assert_eq!(failure.traceback, "ab");
    }

    #[test]
    fn hostile_content_is_nothing() {
        for kind in [
            "stream",
            "error",
            "execute_input",
            "execute_result",
            "status",
        ] {
            for content in [
                json!(null),
                json!([true]),
                json!({"data": 5, "name": [], "text": 1,
                "execution_count": -1, "execution_state": {}, "ename": 3}),
            ] {
                assert!(
                    matches!(read(kind, &content), Broadcast::Other),
                    "{kind} {content}"
                );
            }
        }
    }

    #[test]
    fn updates_comms_and_input_requests_are_not_forwarded() {
        for kind in [
            "update_display_data",
            "clear_output",
            "comm_open",
            "input_request",
        ] {
            assert!(matches!(read(kind, &json!({})), Broadcast::Other));
        }
    }

    #[test]
    fn both_spellings_of_aborted_are_known() {
        for (content, reply) in [
            (&br#"{"status":"aborted"}"#[..], ExecuteReply::Aborted),
            (br#"{"status":"abort"}"#, ExecuteReply::Aborted),
            (br#"{"status":"error"}"#, ExecuteReply::Done),
            (b"rubbish", ExecuteReply::Done),
        ] {
            assert_eq!(ExecuteReply::read(content), reply);
        }
    }
}
