//! `POST /files`.

pub(crate) mod body;

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    rc::Rc,
};

use http::{Request, Response, StatusCode, header};
use hyper::body::Incoming;
use multer::Multipart;
use serde::Serialize;

use self::body::UploadBody;
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
pub(super) struct Written {
    pub(super) path: String,
    pub(super) name: String,
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    #[serde(skip_serializing_if = "Metadata::is_empty")]
    pub(super) metadata: Metadata,
}

impl Written {
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
    request: Request<Incoming>,
) -> Result<Response<Body>, Failure> {
    let (parts, body) = request.into_parts();
    let mut body = UploadBody::new(body);
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
        upload
            .parts(&query, Multipart::new(body.into_stream(), boundary))
            .await?
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
    async fn whole_body(&self, query: &Query, mut body: UploadBody) -> Result<Written, Failure> {
        if query.path.is_empty() {
            return Err(Failure::bad_request(
                "path is required for this content type",
            ));
        }
        let path = resolve(self.envd, &query.path, &self.user)?;
        let mut sink = FileSink::create(&path, &self.user)?;
        while let Some(data) = body.next().await? {
            sink.write(&data)
                .await
                .map_err(|e| write_failed(&path, &e))?;
        }
        self.finish(path, sink).await
    }

    async fn parts(
        &self,
        query: &Query,
        mut multipart: Multipart<'_>,
    ) -> Result<Vec<Written>, Failure> {
        let mut written = Vec::new();
        let mut taken: HashSet<PathBuf> = HashSet::new();
        while let Some(mut part) = multipart.next_field().await.map_err(multipart_failed)? {
            if part.name() != Some("file") {
                continue;
            }
            let name = match (query.path.as_str(), part.file_name()) {
                ("", Some(name)) if !name.is_empty() => name.to_owned(),
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
            let mut sink = FileSink::create(&path, &self.user)?;
            while let Some(data) = part.chunk().await.map_err(multipart_failed)? {
                sink.write(&data)
                    .await
                    .map_err(|e| write_failed(&path, &e))?;
            }
            written.push(self.finish(path, sink).await?);
        }
        Ok(written)
    }

    async fn finish(&self, path: PathBuf, sink: FileSink) -> Result<Written, Failure> {
        let file = sink.finish().await.map_err(|e| write_failed(&path, &e))?;
        let stored = metadata::replace(&file, &self.metadata);
        Ok(Written::new(&path, stored))
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
