//! How messages are written: proto3 JSON or protobuf.
//!
//! Every message derives both `prost::Message` and serde's traits. A protobuf `oneof` is written as
//! several optional fields: on the wire, in both encodings, that is the same thing.

use http::{HeaderMap, header::CONTENT_TYPE};
use prost::Message;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::error::Category;
use soulbox_envd_protocol::json;

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
            Self::Json => json::from_slice(body).map_err(|e| match e.classify() {
                Category::Data => ConnectError::invalid(e.to_string()),
                _ => ConnectError::invalid(format!("not JSON: {e}")),
            }),
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

fn media_type(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    Some(text.split(';').next().unwrap_or(text).trim())
}

#[cfg(test)]
mod properties;
