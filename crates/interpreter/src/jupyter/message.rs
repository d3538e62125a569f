//! One message: identities, delimiter, signature, then header, parent, metadata and content.

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::{clock, zmtp};

const DELIMITER: &[u8] = b"<IDS|MSG>";
const VERSION: &str = "5.3";

/// What all messages to one kernel have in common.
pub(crate) struct Session {
    mac: Hmac<Sha256>,
    id: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Incoming {
    pub(crate) kind: String,
    /// The id of the request that this belongs to; empty when it belongs to none.
    pub(crate) parent: String,
    pub(crate) content: Vec<u8>,
    /// The content was too large and is missing.
    pub(crate) cut: bool,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum Error {
    #[error("a message without {0}")]
    Incomplete(&'static str),
    #[error("a message whose signature is wrong")]
    Forged,
    #[error("a message whose {0} is not what Jupyter writes")]
    Malformed(&'static str),
    #[error("the signing key cannot be used")]
    Key,
}

#[derive(Serialize)]
struct Header<'a> {
    msg_id: &'a str,
    session: &'a str,
    username: &'a str,
    date: &'a str,
    msg_type: &'a str,
    version: &'a str,
}

#[derive(Deserialize)]
struct Kind {
    msg_type: String,
}

#[derive(Deserialize)]
struct Parent {
    #[serde(default)]
    msg_id: String,
}

impl Session {
    pub(crate) fn new(key: &str) -> Result<Self, Error> {
        Ok(Self {
            mac: Hmac::new_from_slice(key.as_bytes()).map_err(|_| Error::Key)?,
            id: uuid::Uuid::new_v4().simple().to_string(),
        })
    }

    /// The id of the new message, and its parts.
    pub(crate) fn request(
        &self,
        kind: &str,
        content: &impl Serialize,
    ) -> Result<(String, Vec<Vec<u8>>), Error> {
        let id = uuid::Uuid::new_v4().simple().to_string();
        let header = serde_json::to_vec(&Header {
            msg_id: &id,
            session: &self.id,
            username: "soulbox",
            date: &clock::now(),
            msg_type: kind,
            version: VERSION,
        })
        .map_err(|_| Error::Malformed("header"))?;
        let content = serde_json::to_vec(content).map_err(|_| Error::Malformed("content"))?;
        let body = [header, b"{}".to_vec(), b"{}".to_vec(), content];
        let mut mac = self.mac.clone();
        for part in &body {
            mac.update(part);
        }
        let signature = hex::encode(mac.finalize().into_bytes()).into_bytes();
        let mut parts = vec![DELIMITER.to_vec(), signature];
        parts.extend(body);
        Ok((id, parts))
    }

    pub(crate) fn read(&self, message: zmtp::Message) -> Result<Incoming, Error> {
        let cut = message.cut;
        let mut parts = message
            .parts
            .into_iter()
            .skip_while(|part| part != DELIMITER)
            .skip(1);
        let signature = parts.next().ok_or(Error::Incomplete("signature"))?;
        let header = parts.next().ok_or(Error::Incomplete("header"))?;
        let parent = parts.next().ok_or(Error::Incomplete("parent"))?;
        let metadata = parts.next();
        let content = parts.next();
        if !cut {
            let metadata = metadata.ok_or(Error::Incomplete("metadata"))?;
            let content = content.as_ref().ok_or(Error::Incomplete("content"))?;
            let mut mac = self.mac.clone();
            for part in [&header, &parent, &metadata, content] {
                mac.update(part);
            }
            let signature = hex::decode(signature).map_err(|_| Error::Forged)?;
            mac.verify_slice(&signature).map_err(|_| Error::Forged)?;
        }
        let kind: Kind = serde_json::from_slice(&header).map_err(|_| Error::Malformed("header"))?;
        let parent: Parent =
            serde_json::from_slice(&parent).map_err(|_| Error::Malformed("parent"))?;
        Ok(Incoming {
            kind: kind.msg_type,
            parent: parent.msg_id,
            content: content.unwrap_or_default(),
            cut,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        Session::new("a key").unwrap()
    }

    fn message(parts: Vec<Vec<u8>>) -> zmtp::Message {
        zmtp::Message { parts, cut: false }
    }

    #[test]
    fn what_is_signed_is_accepted_behind_any_identities() {
        let session = session();
        let (_, mut parts) = session
            .request("status", &serde_json::json!({"a": 1}))
            .unwrap();
        parts.insert(0, b"topic".to_vec());
        let incoming = session.read(message(parts)).unwrap();
        assert_eq!(
            (incoming.kind.as_str(), incoming.parent.as_str()),
            ("status", "")
        );
        assert_eq!(incoming.content, b"{\"a\":1}");
    }

    #[test]
    fn a_changed_content_or_another_key_is_forged() {
        let (_, mut parts) = session().request("status", &()).unwrap();
        let other = Session::new("another").unwrap();
        assert_eq!(other.read(message(parts.clone())), Err(Error::Forged));
        *parts.last_mut().unwrap() = b"{}".to_vec();
        assert_eq!(session().read(message(parts)), Err(Error::Forged));
    }

    #[test]
    fn rubbish_is_an_error_and_not_a_panic() {
        let session = session();
        let (_, good) = session.request("status", &()).unwrap();
        for length in 0..good.len() {
            assert!(session.read(message(good[..length].to_vec())).is_err());
        }
        for rubbish in [vec![], vec![vec![]], vec![DELIMITER.to_vec(); 9]] {
            assert!(session.read(message(rubbish)).is_err());
        }
    }

    #[test]
    fn a_message_that_was_cut_still_tells_whose_it_is() {
        let session = session();
        let (_, mut parts) = session.request("stream", &()).unwrap();
        parts.truncate(5);
        let incoming = session.read(zmtp::Message { parts, cut: true }).unwrap();
        assert!(incoming.cut && incoming.content.is_empty());
    }
}
