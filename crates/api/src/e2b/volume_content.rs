//! `/volumecontent/{id}/path|dir|file`: the files of a volume, for whoever shows its token.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    body::Body,
    extract::{FromRequestParts, Request, State},
    response::{IntoResponse, Response},
};
use http::{
    HeaderValue, StatusCode,
    header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE},
    request::Parts,
};
use http_body_util::BodyExt;
use serde::{Deserialize, Serialize};
use soulbox_control::{
    ErrorCode,
    volume::{Changes, Content, Entry, Error as VolumeError, Kind, MAX_DEPTH, Writer},
};
use tokio::io::AsyncWriteExt;
use tokio_util::io::ReaderStream;

use crate::{
    router::App,
    shared::{
        body::OptionalJson,
        error::{ApiError, Result},
        path::Segment,
        query::Query,
    },
};

const READ_CHUNK: usize = 128 * 1024;
/// Between two pieces of an upload.
const IDLE_LIMIT: Duration = Duration::from_mins(1);
/// Bytes between two looks at the room on the host's disk.
const CHECK_ROOM_EVERY: usize = 8 << 20;
/// The ids that sandboxes know.
const MAX_ID: u32 = 65_535;

/// The volume of a request, and the path that it is about.
#[derive(Debug)]
pub(crate) struct Place {
    content: Arc<Content>,
    path: String,
    query: Query,
}

impl FromRequestParts<App> for Place {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        let Segment(id) = Segment::<String>::from_request_parts(parts, app).await?;
        let token = bearer(parts).ok_or_else(|| {
            ApiError::new(ErrorCode::Unauthenticated, "no volume token")
                .hint("send it as `Authorization: Bearer`")
        })?;
        let content = app.control.volume_content(&id, token).await?;
        let Ok(query) = Query::from_request_parts(parts, app).await;
        let path = query.text("path");
        let path = path
            .ok_or_else(|| ApiError::bad_request("path is required"))?
            .to_owned();
        Ok(Self {
            content,
            path,
            query,
        })
    }
}

fn bearer(parts: &Parts) -> Option<&str> {
    let text = parts.headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = text.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then_some(token.trim())
}

impl Place {
    async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce(&Arc<Content>, &str) -> Result<T, VolumeError> + Send + 'static,
    ) -> Result<T> {
        let Self { content, path, .. } = self;
        blocking(move || work(&content, &path)).await
    }

    fn changes(&self) -> Result<Changes> {
        Changed {
            uid: self.query.number("uid")?,
            gid: self.query.number("gid")?,
            mode: self.query.number("mode")?,
        }
        .checked()
    }

    fn force(&self) -> Result<bool> {
        match self.query.text("force") {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(ApiError::bad_request("Invalid format for parameter force")),
        }
    }
}

/// E2B's `VolumeEntryStat`.
#[derive(Debug, Serialize)]
pub(crate) struct Stat {
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    path: String,
    size: u64,
    mode: u32,
    uid: u32,
    gid: u32,
    atime: String,
    mtime: String,
    ctime: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

impl From<Entry> for Stat {
    fn from(entry: Entry) -> Self {
        Self {
            name: entry.name,
            kind: match entry.kind {
                Kind::File => "file",
                Kind::Directory => "directory",
                Kind::Symlink => "symlink",
                Kind::Other => "unknown",
            },
            path: entry.path,
            size: entry.size,
            mode: entry.mode,
            uid: entry.uid,
            gid: entry.gid,
            atime: moment(entry.accessed),
            mtime: moment(entry.modified),
            ctime: moment(entry.changed),
            target: entry.target,
        }
    }
}

fn moment(at: soulbox_control::volume::Timestamp) -> String {
    let nanoseconds = i32::try_from(at.nanoseconds).unwrap_or_default();
    // Files can claim any time; what no calendar has is told as the beginning of ours.
    let at = jiff::Timestamp::new(at.seconds, nanoseconds).unwrap_or_default();
    format!("{at:.6}")
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Changed {
    uid: Option<u32>,
    gid: Option<u32>,
    mode: Option<u32>,
}

impl Changed {
    fn checked(self) -> Result<Changes> {
        if self.uid.max(self.gid) > Some(MAX_ID) {
            let message = format!("uid and gid must be between 0 and {MAX_ID}");
            return Err(ApiError::bad_request(message));
        }
        if self.mode > Some(0o7777) {
            return Err(ApiError::bad_request(
                "mode must be between 0 and 4095 (0o7777)",
            ));
        }
        Ok(Changes {
            uid: self.uid,
            gid: self.gid,
            mode: self.mode,
        })
    }
}

pub(crate) async fn stat(place: Place) -> Result<Json<Stat>> {
    let entry = place.run(|content, path| content.stat(path)).await?;
    Ok(Json(entry.into()))
}

pub(crate) async fn change(
    place: Place,
    OptionalJson(body): OptionalJson<Changed>,
) -> Result<Json<Stat>> {
    let changes = body.checked()?;
    let entry = place
        .run(move |content, path| content.change(path, changes))
        .await?;
    Ok(Json(entry.into()))
}

pub(crate) async fn remove(place: Place) -> Result<StatusCode> {
    place.run(|content, path| content.remove(path)).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn list(place: Place) -> Result<Json<Vec<Stat>>> {
    let depth = place.query.number("depth")?.unwrap_or(1);
    if !(1..=MAX_DEPTH).contains(&depth) {
        let message = format!("depth must be between 1 and {MAX_DEPTH}");
        return Err(ApiError::bad_request(message));
    }
    let entries = place
        .run(move |content, path| content.list(path, depth))
        .await?;
    Ok(Json(entries.into_iter().map(Stat::from).collect()))
}

pub(crate) async fn make_directory(place: Place) -> Result<(StatusCode, Json<Stat>)> {
    let (changes, force) = (place.changes()?, place.force()?);
    let entry = place
        .run(move |content, path| content.make_directory(path, changes, force))
        .await?;
    Ok((StatusCode::CREATED, Json(entry.into())))
}

pub(crate) async fn read(place: Place) -> Result<Response> {
    let (file, entry) = place.run(|content, path| content.read(path)).await?;
    // What is written to it meanwhile must not make more of it than its length says.
    let file = tokio::io::AsyncReadExt::take(tokio::fs::File::from_std(file), entry.size);
    let body = Body::from_stream(ReaderStream::with_capacity(file, READ_CHUNK));
    let mut response = body.into_response();
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("application/octet-stream");
    headers.insert(CONTENT_TYPE, kind);
    headers.insert(CONTENT_LENGTH, HeaderValue::from(entry.size));
    Ok(response)
}

pub(crate) async fn write(
    State(_): State<App>,
    place: Place,
    request: Request,
) -> Result<(StatusCode, Json<Stat>)> {
    let (changes, force) = (place.changes()?, place.force()?);
    let writer = place
        .run(move |content, path| content.write(path, changes, force))
        .await?;
    let file = writer.file().map_err(Writer::failed)?;
    let room = writer.reserve_check();
    receive(request, tokio::fs::File::from_std(file), room).await?;
    let entry = blocking(move || writer.finish()).await?;
    Ok((StatusCode::CREATED, Json(entry.into())))
}

async fn receive(
    request: Request,
    mut file: tokio::fs::File,
    room: impl Fn() -> Result<(), VolumeError> + Clone + Send + 'static,
) -> Result<()> {
    let mut body = request.into_body();
    let mut unchecked = 0;
    loop {
        let frame = match tokio::time::timeout(IDLE_LIMIT, body.frame()).await {
            Ok(None) => break,
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(_))) => {
                let message = "the body could not be read";
                return Err(ApiError::new(ErrorCode::RequestCutOff, message));
            }
            Err(_) => {
                let message = "the body did not arrive in time";
                return Err(ApiError::new(ErrorCode::RequestTooSlow, message));
            }
        };
        if let Ok(data) = frame.into_data() {
            unchecked += data.len();
            if unchecked >= CHECK_ROOM_EVERY {
                unchecked = 0;
                blocking(room.clone()).await?;
            }
            file.write_all(&data).await.map_err(Writer::failed)?;
        }
    }
    file.flush().await.map_err(Writer::failed)?;
    Ok(())
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, VolumeError> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(ApiError::new(
            ErrorCode::OperationFailed,
            "the work was interrupted inside the server",
        )),
    }
}
