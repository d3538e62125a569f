//! `POST /files`.

pub(crate) mod body;
mod splice;

use std::{
    collections::HashSet,
    fs::File,
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
};

use bytes::Bytes;
use http::{Response, StatusCode, header, request};
use multer::Multipart;
use serde::Serialize;

use self::body::{Unread, UploadBody};
use super::{
    Query,
    metadata::{self, Metadata},
    resolve,
    sink::FileSink,
};
use crate::{
    http::{body::Body, reply, reply::Failure},
    paths::base_name,
    state::Envd,
    users::User,
};

/// What clients compare field by field: nothing more may be in it.
#[derive(Debug, Serialize)]
pub(super) struct WriteInfo {
    pub(super) path: String,
    pub(super) name: String,
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    #[serde(skip_serializing_if = "Metadata::is_empty")]
    pub(super) metadata: Metadata,
}

impl WriteInfo {
    pub(super) fn new(path: &Path, metadata: Metadata) -> Self {
        Self {
            path: path.to_string_lossy().into_owned(),
            name: base_name(path),
            kind: "file",
            metadata,
        }
    }
}

pub(crate) async fn handle(
    envd: &Rc<Envd>,
    parts: &request::Parts,
    mut body: UploadBody,
) -> Result<Response<Body>, Failure> {
    let query = Query::parse(parts.uri.query());
    query.authorise(envd, &parts.headers, "write")?;
    let user = query.user(envd)?;
    let metadata = metadata::from_headers(&parts.headers)?;
    body.decode(&parts.headers)?;

    let content_type = parts
        .headers
        .get(header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    let media_type = content_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    let upload = Upload {
        envd,
        user,
        metadata,
    };
    let written = if media_type == "application/octet-stream" {
        vec![upload.whole_body(&query, body).await?]
    } else if media_type.starts_with("multipart/") {
        let boundary = boundary(content_type)
            .ok_or_else(|| Failure::bad_request("the multipart body has no boundary"))?;
        let unread = Arc::<Unread>::default();
        let form = Multipart::new(body.into_stream(Arc::clone(&unread)), boundary);
        upload.parts(&query, form, &unread).await?
    } else {
        return Err(Failure::bad_request(format!(
            "unsupported content type: '{content_type}'"
        )));
    };
    Ok(reply::json(
        StatusCode::OK,
        serde_json::to_vec(&written).unwrap_or_default(),
    ))
}

struct Upload<'a> {
    envd: &'a Rc<Envd>,
    user: User,
    metadata: Metadata,
}

impl Upload<'_> {
    async fn whole_body(&self, query: &Query, mut body: UploadBody) -> Result<WriteInfo, Failure> {
        if query.path.is_empty() {
            return Err(Failure::bad_request(
                "path is required for this content type",
            ));
        }
        let path = resolve(self.envd, &query.path, &self.user)?;
        let mut sink = FileSink::create(&path, &self.user).await?;
        if let Some(plain) = body.plain_in_socket() {
            while let Some(data) = plain.early() {
                let written = sink.write(data).await;
                written.map_err(|e| write_failed(&path, &e))?;
            }
            let file = sink.finish().await.map_err(|e| write_failed(&path, &e))?;
            let (socket, left) = plain.rest();
            splice::receive(socket, &file, left, |e| write_failed(&path, e)).await?;
            return Ok(self.written(&path, &file));
        }
        self.fill(path, sink, async || body.next().await).await
    }

    async fn parts(
        &self,
        query: &Query,
        mut multipart: Multipart<'_>,
        unread: &Unread,
    ) -> Result<Vec<WriteInfo>, Failure> {
        let mut written = Vec::new();
        let mut taken: HashSet<PathBuf> = HashSet::new();
        while let Some(mut part) = multipart.next_field().await.map_err(multipart_failed)? {
            unread.gave_something_back();
            let is_file = part.name() == Some("file");
            let file_name = part.file_name().map(str::to_owned);
            let mut next = async || {
                let chunk = part.chunk().await.map_err(multipart_failed);
                unread.gave_something_back();
                chunk
            };
            if !is_file {
                while next().await?.is_some() {}
                continue;
            }
            let name = match (query.path.as_str(), file_name) {
                ("", Some(name)) if !name.is_empty() => name,
                ("", _) => {
                    return Err(Failure::bad_request(
                        "a part has no filename and the request no path",
                    ));
                }
                (path, _) => path.to_owned(),
            };
            let path = resolve(self.envd, &name, &self.user)?;
            if !taken.insert(path.clone()) {
                return Err(Failure::bad_request(format!(
                    "you cannot upload multiple files to the same path '{}' in one request",
                    path.display()
                )));
            }
            let sink = FileSink::create(&path, &self.user).await?;
            written.push(self.fill(path, sink, next).await?);
        }
        Ok(written)
    }

    /// Makes a file of all that comes.
    async fn fill(
        &self,
        path: PathBuf,
        mut sink: FileSink,
        mut next: impl AsyncFnMut() -> Result<Option<Bytes>, Failure>,
    ) -> Result<WriteInfo, Failure> {
        loop {
            let written = match next().await {
                Ok(Some(data)) => sink.write(data).await,
                Ok(None) => break,
                Err(failure) => {
                    // Whoever tries again must not meet what is still being written.
                    let _told_already = sink.written().await;
                    return Err(failure);
                }
            };
            written.map_err(|e| write_failed(&path, &e))?;
        }
        let file = sink.finish().await.map_err(|e| write_failed(&path, &e))?;
        Ok(self.written(&path, &file))
    }

    fn written(&self, path: &Path, file: &File) -> WriteInfo {
        WriteInfo::new(path, metadata::replace(file, &self.metadata))
    }
}

/// Any `multipart/*`, so not through multer, which insists on form-data.
fn boundary(content_type: &str) -> Option<String> {
    let value = content_type.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim()
            .eq_ignore_ascii_case("boundary")
            .then(|| value.trim().trim_matches('"'))
    })?;
    (!value.is_empty() && value.len() <= 200).then(|| value.to_owned())
}

fn stalled() -> Failure {
    Failure::new(
        StatusCode::REQUEST_TIMEOUT,
        "the upload stalled and was given up",
    )
}

fn write_failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::io(format!("error writing '{}'", path.display()), error)
}

/// Our own failure travels through multer; its failures are the client's.
fn multipart_failed(error: multer::Error) -> Failure {
    if let multer::Error::StreamReadFailed(source) = error {
        return match source.downcast::<Failure>() {
            Ok(failure) => *failure,
            Err(source) => Failure::bad_request(format!("reading the upload: {source}")),
        };
    }
    Failure::bad_request(format!("error parsing multipart form: {error}"))
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_are_found_quoted_or_not() {
        assert_eq!(
            boundary("multipart/form-data; boundary=abc").unwrap(),
            "abc"
        );
        assert_eq!(
            boundary("multipart/mixed; x=y; Boundary=\"a b\"").unwrap(),
            "a b"
        );
        assert_eq!(boundary("multipart/form-data"), None);
    }
}
