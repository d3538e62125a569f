//! How messages are written: proto3 JSON or protobuf.
//!
//! Every message derives both `prost::Message` and serde's traits. A protobuf `oneof` is written as
//! several optional fields: on the wire, in both encodings, that is the same thing.

use http::{HeaderMap, header::CONTENT_TYPE};
use prost::Message;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::ConnectError;

/// A message of the protocol.
pub(crate) trait Wire: Message + Default + Serialize + DeserializeOwned {}
impl<T: Message + Default + Serialize + DeserializeOwned> Wire for T {}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Codec {
    Json,
    Proto,
}

impl Codec {
    pub(crate) fn of_unary(headers: &HeaderMap) -> Option<Self> {
        match media_type(headers)? {
            "application/json" => Some(Self::Json),
            "application/proto" => Some(Self::Proto),
            _ => None,
        }
    }

    pub(crate) fn of_stream(headers: &HeaderMap) -> Option<Self> {
        match media_type(headers)? {
            "application/connect+json" => Some(Self::Json),
            "application/connect+proto" => Some(Self::Proto),
            _ => None,
        }
    }

    pub(crate) fn unary_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Proto => "application/proto",
        }
    }

    pub(crate) fn stream_type(self) -> &'static str {
        match self {
            Self::Json => "application/connect+json",
            Self::Proto => "application/connect+proto",
        }
    }

    pub(crate) fn decode<M: Wire>(self, body: &[u8]) -> Result<M, ConnectError> {
        match self {
            Self::Proto => M::decode(body).map_err(|e| ConnectError::invalid(e.to_string())),
            // An empty body is an empty message: clients without arguments may send nothing.
            Self::Json if body.is_empty() => Ok(M::default()),
            Self::Json => {
                let mut value = serde_json::from_slice(body)
                    .map_err(|e| ConnectError::invalid(format!("not JSON: {e}")))?;
                drop_nulls(&mut value);
                serde_json::from_value(value).map_err(|e| ConnectError::invalid(e.to_string()))
            }
        }
    }

    pub(crate) fn encode<M: Wire>(self, message: &M, to: &mut Vec<u8>) -> Result<(), ConnectError> {
        match self {
            Self::Proto => message
                .encode(to)
                .map_err(|e| ConnectError::internal(e.to_string())),
            Self::Json => serde_json::to_writer(to, message)
                .map_err(|e| ConnectError::internal(e.to_string())),
        }
    }
}

/// In proto3 JSON `null` means "not set", for any field.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, v| !v.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

fn media_type(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    Some(text.split(';').next().unwrap_or(text).trim())
}

#[cfg(test)]
mod properties;
