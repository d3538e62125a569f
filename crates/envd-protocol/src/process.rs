//! Messages of `process.Process`. Field numbers are E2B's.

use std::collections::BTreeMap;

use prost::Message;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::json::{self, is_default};

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
pub struct Empty {}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default)]
pub struct PtySize {
    #[prost(uint32, tag = "1")]
    #[serde(deserialize_with = "json::number", skip_serializing_if = "is_default")]
    pub cols: u32,
    #[prost(uint32, tag = "2")]
    #[serde(deserialize_with = "json::number", skip_serializing_if = "is_default")]
    pub rows: u32,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default)]
pub struct Pty {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<PtySize>,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessConfig {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub cmd: String,
    #[prost(string, repeated, tag = "2")]
    #[serde(skip_serializing_if = "is_default")]
    pub args: Vec<String>,
    #[prost(btree_map = "string, string", tag = "3")]
    #[serde(skip_serializing_if = "is_default")]
    pub envs: BTreeMap<String, String>,
    #[prost(string, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessSelector {
    #[prost(uint32, optional, tag = "1")]
    #[serde(
        deserialize_with = "json::optional_number",
        skip_serializing_if = "Option::is_none"
    )]
    pub pid: Option<u32>,
    #[prost(string, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

impl ProcessSelector {
    pub fn by_pid(pid: u32) -> Self {
        Self {
            pid: Some(pid),
            tag: None,
        }
    }

    pub fn by_tag(tag: &str) -> Self {
        Self {
            pid: None,
            tag: Some(tag.to_owned()),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessInfo {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<ProcessConfig>,
    #[prost(uint32, tag = "2")]
    #[serde(skip_serializing_if = "is_default")]
    pub pid: u32,
    #[prost(string, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default)]
pub struct StartEvent {
    #[prost(uint32, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub pid: u32,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default)]
pub struct DataEvent {
    #[prost(bytes = "vec", optional, tag = "1")]
    #[serde(with = "json::bytes", skip_serializing_if = "Option::is_none")]
    pub stdout: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "2")]
    #[serde(with = "json::bytes", skip_serializing_if = "Option::is_none")]
    pub stderr: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "3")]
    #[serde(with = "json::bytes", skip_serializing_if = "Option::is_none")]
    pub pty: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EndEvent {
    #[prost(sint32, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub exit_code: i32,
    #[prost(bool, tag = "2")]
    #[serde(skip_serializing_if = "is_default")]
    pub exited: bool,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "is_default")]
    pub status: String,
    #[prost(string, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A oneof: exactly one field is set.
#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessEvent {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<StartEvent>,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<DataEvent>,
    #[prost(message, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<EndEvent>,
    #[prost(message, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keepalive: Option<Empty>,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default)]
pub struct EventResponse {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<ProcessEvent>,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default)]
pub struct StartRequest {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessConfig>,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pty: Option<Pty>,
    #[prost(string, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    #[prost(bool, optional, tag = "4")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdin: Option<bool>,
}

/// `Connect` and `CloseStdin` ask with the same message.
#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default)]
pub struct SelectRequest {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessSelector>,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default)]
pub struct ListResponse {
    #[prost(message, repeated, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub processes: Vec<ProcessInfo>,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default)]
pub struct UpdateRequest {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessSelector>,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pty: Option<Pty>,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessInput {
    #[prost(bytes = "vec", optional, tag = "1")]
    #[serde(with = "json::bytes", skip_serializing_if = "Option::is_none")]
    pub stdin: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "2")]
    #[serde(with = "json::bytes", skip_serializing_if = "Option::is_none")]
    pub pty: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default)]
pub struct SendInputRequest {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessSelector>,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<ProcessInput>,
}

/// The `data` of a `StreamInput` message. Its input has number 2, not 1.
#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamInputData {
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<ProcessInput>,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamInputRequest {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<SelectRequest>,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<StreamInputData>,
    #[prost(message, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keepalive: Option<Empty>,
}

pub const SIGKILL: i32 = 9;
pub const SIGTERM: i32 = 15;
const SIGNALS: &[(i32, &str)] = &[
    (0, "SIGNAL_UNSPECIFIED"),
    (SIGKILL, "SIGNAL_SIGKILL"),
    (SIGTERM, "SIGNAL_SIGTERM"),
];

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default)]
pub struct SendSignalRequest {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessSelector>,
    #[prost(int32, tag = "2")]
    #[serde(serialize_with = "signal_name", deserialize_with = "signal_number")]
    pub signal: i32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn signal_name<S: Serializer>(value: &i32, to: S) -> Result<S::Ok, S::Error> {
    json::enum_to_json(*value, SIGNALS, to)
}

fn signal_number<'de, D: Deserializer<'de>>(from: D) -> Result<i32, D::Error> {
    json::enum_from_json(from, SIGNALS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_base64_and_defaults_are_left_out() {
        let data = DataEvent {
            stdout: Some(vec![0xff, 0xfe, 0xfd]),
            ..Default::default()
        };
        assert_eq!(
            serde_json::to_string(&data).unwrap(),
            r#"{"stdout":"//79"}"#
        );
        assert_eq!(serde_json::to_string(&EndEvent::default()).unwrap(), "{}");
    }

    #[test]
    fn url_safe_and_unpadded_bytes_are_read() {
        for text in [
            r#"{"stdin":"__79AA"}"#,
            r#"{"stdin":"//79AA=="}"#,
            r#"{"stdin":"//79AA"}"#,
        ] {
            let input: ProcessInput = serde_json::from_str(text).unwrap();
            assert_eq!(input.stdin.unwrap(), [0xff, 0xfe, 0xfd, 0]);
        }
    }

    #[test]
    fn signals_are_read_by_name_and_number() {
        for text in [
            r#"{"signal":"SIGNAL_SIGKILL"}"#,
            r#"{"signal":9,"later":{"a":1}}"#,
        ] {
            assert_eq!(
                serde_json::from_str::<SendSignalRequest>(text)
                    .unwrap()
                    .signal,
                SIGKILL
            );
        }
        assert!(serde_json::from_str::<SendSignalRequest>(r#"{"signal":"SIGHUP"}"#).is_err());
    }

    #[test]
    fn null_means_not_set() {
        let text = br#"{"process":{"cmd":"x","args":null,"cwd":null},"pty":null}"#;
        let request: StartRequest = json::from_slice(text).unwrap();
        assert_eq!(request.process.unwrap().cmd, "x");
        assert!(request.pty.is_none() && request.stdin.is_none());
    }

    #[test]
    fn oneofs_survive_the_binary_encoding() {
        let selector = ProcessSelector {
            pid: Some(0),
            tag: None,
        };
        let bytes = selector.encode_to_vec();
        assert_eq!(bytes, [8, 0], "a chosen zero is still written");
        assert_eq!(ProcessSelector::decode(&*bytes).unwrap(), selector);
    }
}
