//! Files: whole contents as streams through `/files`, everything else by procedure.

use std::{collections::BTreeMap, io};

use bytes::Bytes;
use futures_util::Stream;
use http::{Method, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{CALL_LIMIT, Envd, IDLE_LIMIT};
use crate::{Error, Result, transport, upload};

/// A file or folder. Names come from inside the sandbox: check them before they touch a disk.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    #[serde(default)]
    pub name: String,
    #[serde(rename = "type", default)]
    pub kind: EntryKind,
    #[serde(default)]
    pub path: String,
    #[serde(default, deserialize_with = "number_or_text")]
    pub size: u64,
    /// Permission bits.
    #[serde(default)]
    pub mode: u32,
    #[serde(default)]
    pub owner: String,
    #[serde(default)]
    pub group: String,
    #[serde(default)]
    pub modified_time: Option<String>,
    #[serde(default)]
    pub symlink_target: Option<String>,
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    #[serde(rename = "FILE_TYPE_FILE")]
    File,
    #[serde(rename = "FILE_TYPE_DIRECTORY")]
    Directory,
    #[serde(rename = "FILE_TYPE_SYMLINK")]
    Symlink,
    /// A device, a socket, a broken link, or something newer than this client.
    #[default]
    #[serde(other, rename = "FILE_TYPE_UNSPECIFIED")]
    Other,
}

/// A file's bytes as they come.
#[derive(Debug)]
pub struct Download {
    pub length: Option<u64>,
    body: Incoming,
    url: String,
}

impl Download {
    pub async fn chunk(&mut self) -> Result<Option<Bytes>> {
        loop {
            let frame =
                timeout(IDLE_LIMIT, self.body.frame())
                    .await
                    .map_err(|_| Error::Timeout {
                        what: "the download",
                        limit: IDLE_LIMIT,
                    })?;
            match frame {
                None => return Ok(None),
                Some(Err(error)) => {
                    return Err(Error::Broken {
                        url: self.url.clone(),
                        source: Box::new(error),
                    });
                }
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }
}

impl Envd {
    pub async fn download(&self, path: &str) -> Result<Download> {
        let request = self
            .request(Method::GET, &self.files_path(path))?
            .header(header::ACCEPT_ENCODING, "identity")
            .body(transport::empty())
            .map_err(|error| Error::protocol(error.to_string()))?;
        let url = transport::origin(request.uri());
        let response = self.open(request, "opening the file").await?;
        let length = response
            .headers()
            .get(header::CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok()?.parse().ok());
        Ok(Download {
            length,
            body: response.into_body(),
            url,
        })
    }

    /// Writes a whole file, with its missing parents. Any length; ends early when no byte moves
    /// for a minute. Callers that know the `length` should pass it: without one the body goes in HTTP's
    /// chunks, and everybody on its way takes them apart and puts them together again.
    pub async fn upload(
        &self,
        path: &str,
        length: Option<u64>,
        content: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<()> {
        let mut request = self
            .request(Method::POST, &self.files_path(path))?
            .header(header::CONTENT_TYPE, "application/octet-stream");
        if let Some(length) = length {
            request = request.header(header::CONTENT_LENGTH, length);
        }
        let answer = upload::send(&self.transport, request, content).await?;
        if answer.status.is_success() {
            Ok(())
        } else {
            Err(self.refused(&answer))
        }
    }

    pub async fn stat(&self, path: &str) -> Result<Entry> {
        #[derive(Deserialize)]
        struct Answer {
            entry: Entry,
        }
        let request = json!({ "path": path });
        let answer: Answer = self
            .unary(
                "filesystem.Filesystem/Stat",
                &request,
                "looking at the file",
            )
            .await?;
        Ok(answer.entry)
    }

    pub async fn list_directory(&self, path: &str, depth: u32) -> Result<Vec<Entry>> {
        #[derive(Deserialize)]
        struct Answer {
            #[serde(default)]
            entries: Vec<Entry>,
        }
        let request = json!({ "path": path, "depth": depth });
        let answer: Answer = self
            .unary(
                "filesystem.Filesystem/ListDir",
                &request,
                "listing the folder",
            )
            .await?;
        Ok(answer.entries)
    }

    /// With its parents. `false`: it was there.
    pub async fn make_directory(&self, path: &str) -> Result<bool> {
        let request = json!({ "path": path });
        let what = "making the folder";
        match self
            .unary::<Value>("filesystem.Filesystem/MakeDir", &request, what)
            .await
        {
            Ok(_) => Ok(true),
            Err(error) if error.rpc_code() == Some("already_exists") => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The sandbox's use of resources just now, by envd's own count.
    pub async fn usage(&self) -> Result<Usage> {
        let request = self
            .request(Method::GET, "/metrics")?
            .body(transport::empty())
            .map_err(|error| Error::protocol(error.to_string()))?;
        let answer = self
            .transport
            .unary(request, "reading the metrics", CALL_LIMIT)
            .await?;
        if !answer.status.is_success() {
            return Err(self.refused(&answer));
        }
        serde_json::from_slice(&answer.body).map_err(|error| Error::protocol(error.to_string()))
    }

    fn files_path(&self, path: &str) -> String {
        let mut target = format!(
            "/files?path={}",
            utf8_percent_encode(path, NON_ALPHANUMERIC)
        );
        if let Some(user) = &self.user {
            target.push_str("&username=");
            target.extend(utf8_percent_encode(user, NON_ALPHANUMERIC));
        }
        target
    }
}

#[derive(Debug, Clone, Deserialize)]
pub struct Usage {
    pub ts: i64,
    pub cpu_count: u32,
    pub cpu_used_pct: f64,
    pub mem_total: u64,
    pub mem_used: u64,
    #[serde(default)]
    pub mem_cache: u64,
    pub disk_used: u64,
    pub disk_total: u64,
}

/// 64-bit numbers are text in proto3's JSON; be kind to servers that send plain ones.
fn number_or_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Wire {
        Number(u64),
        Text(String),
    }
    match Wire::deserialize(deserializer)? {
        Wire::Number(number) => Ok(number),
        Wire::Text(text) => text.parse().map_err(de::Error::custom),
    }
}
