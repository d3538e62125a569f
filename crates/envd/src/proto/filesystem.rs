//! Messages of `filesystem.Filesystem`. Field numbers are E2B's.

use std::collections::BTreeMap;

use prost::Message;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{
    json::{self, is_default},
    process::Empty,
};
use crate::time;

pub(crate) const FILE: i32 = 1;
pub(crate) const DIRECTORY: i32 = 2;
const FILE_TYPES: &[(i32, &str)] = &[
    (0, "FILE_TYPE_UNSPECIFIED"),
    (FILE, "FILE_TYPE_FILE"),
    (DIRECTORY, "FILE_TYPE_DIRECTORY"),
    (3, "FILE_TYPE_SYMLINK"),
];

pub(crate) const CREATE: i32 = 1;
pub(crate) const WRITE: i32 = 2;
pub(crate) const REMOVE: i32 = 3;
pub(crate) const RENAME: i32 = 4;
pub(crate) const CHMOD: i32 = 5;
const EVENT_TYPES: &[(i32, &str)] = &[
    (0, "EVENT_TYPE_UNSPECIFIED"),
    (CREATE, "EVENT_TYPE_CREATE"),
    (WRITE, "EVENT_TYPE_WRITE"),
    (REMOVE, "EVENT_TYPE_REMOVE"),
    (RENAME, "EVENT_TYPE_RENAME"),
    (CHMOD, "EVENT_TYPE_CHMOD"),
];

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Timestamp {
    #[prost(int64, tag = "1")]
    pub(crate) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(crate) nanos: i32,
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&time::rfc3339(
            self.seconds,
            u32::try_from(self.nanos).unwrap_or(0),
        ))
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let (seconds, nanos) = time::parse_rfc3339(&text)
            .ok_or_else(|| serde::de::Error::custom("not an RFC 3339 time"))?;
        Ok(Self {
            seconds,
            nanos: i32::try_from(nanos).unwrap_or(0),
        })
    }
}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct EntryInfo {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) name: String,
    #[prost(int32, tag = "2")]
    #[serde(
        rename = "type",
        serialize_with = "file_type_name",
        deserialize_with = "file_type_number",
        skip_serializing_if = "is_default"
    )]
    pub(crate) kind: i32,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) path: String,
    #[prost(int64, tag = "4")]
    #[serde(with = "json::int64", skip_serializing_if = "is_default")]
    pub(crate) size: i64,
    #[prost(uint32, tag = "5")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) mode: u32,
    #[prost(string, tag = "6")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) permissions: String,
    #[prost(string, tag = "7")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) owner: String,
    #[prost(string, tag = "8")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) group: String,
    #[prost(message, optional, tag = "9")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) modified_time: Option<Timestamp>,
    #[prost(string, optional, tag = "10")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) symlink_target: Option<String>,
    #[prost(btree_map = "string, string", tag = "11")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) metadata: BTreeMap<String, String>,
}

/// The answer of `Stat`, `MakeDir` and `Move`.
#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct EntryResponse {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) entry: Option<EntryInfo>,
}

/// The question of `Stat`, `MakeDir` and `Remove`.
#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PathRequest {
    #[prost(string, tag = "1")]
    pub(crate) path: String,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct MoveRequest {
    #[prost(string, tag = "1")]
    pub(crate) source: String,
    #[prost(string, tag = "2")]
    pub(crate) destination: String,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ListDirRequest {
    #[prost(string, tag = "1")]
    pub(crate) path: String,
    #[prost(uint32, tag = "2")]
    #[serde(deserialize_with = "json::number")]
    pub(crate) depth: u32,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ListDirResponse {
    #[prost(message, repeated, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) entries: Vec<EntryInfo>,
}

/// The question of `WatchDir` and `CreateWatcher`.
#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct WatchRequest {
    #[prost(string, tag = "1")]
    pub(crate) path: String,
    #[prost(bool, tag = "2")]
    pub(crate) recursive: bool,
    #[prost(bool, tag = "3")]
    #[serde(alias = "include_entry")]
    pub(crate) include_entry: bool,
    #[prost(bool, tag = "4")]
    #[serde(alias = "allow_network_mounts")]
    pub(crate) allow_network_mounts: bool,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct FilesystemEvent {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) name: String,
    #[prost(int32, tag = "2")]
    #[serde(
        rename = "type",
        serialize_with = "event_type_name",
        deserialize_with = "event_type_number",
        skip_serializing_if = "is_default"
    )]
    pub(crate) kind: i32,
    #[prost(message, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) entry: Option<EntryInfo>,
}

/// A oneof: exactly one field is set.
#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct WatchDirResponse {
    #[prost(message, optional, tag = "1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) start: Option<Empty>,
    #[prost(message, optional, tag = "2")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) filesystem: Option<FilesystemEvent>,
    #[prost(message, optional, tag = "3")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) keepalive: Option<Empty>,
}

/// The answer of `CreateWatcher`, the question of `GetWatcherEvents` and `RemoveWatcher`.
#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct WatcherId {
    #[prost(string, tag = "1")]
    #[serde(alias = "watcher_id")]
    pub(crate) watcher_id: String,
}

#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct WatcherEvents {
    #[prost(message, repeated, tag = "1")]
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) events: Vec<FilesystemEvent>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn file_type_name<S: Serializer>(value: &i32, to: S) -> Result<S::Ok, S::Error> {
    json::enum_to_json(*value, FILE_TYPES, to)
}

fn file_type_number<'de, D: Deserializer<'de>>(from: D) -> Result<i32, D::Error> {
    json::enum_from_json(from, FILE_TYPES)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn event_type_name<S: Serializer>(value: &i32, to: S) -> Result<S::Ok, S::Error> {
    json::enum_to_json(*value, EVENT_TYPES, to)
}

fn event_type_number<'de, D: Deserializer<'de>>(from: D) -> Result<i32, D::Error> {
    json::enum_from_json(from, EVENT_TYPES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_strings_and_types_are_names() {
        let entry = EntryInfo {
            name: "a".into(),
            kind: FILE,
            size: 5,
            modified_time: Some(Timestamp {
                seconds: 0,
                nanos: 500_000_000,
            }),
            ..Default::default()
        };
        assert_eq!(
            serde_json::to_string(&entry).unwrap(),
            r#"{"name":"a","type":"FILE_TYPE_FILE","size":"5","modifiedTime":"1970-01-01T00:00:00.500Z"}"#
        );
    }

    #[test]
    fn both_spellings_of_a_field_are_read() {
        for text in [r#"{"includeEntry":true}"#, r#"{"include_entry":true}"#] {
            assert!(
                serde_json::from_str::<WatchRequest>(text)
                    .unwrap()
                    .include_entry
            );
        }
    }
}
