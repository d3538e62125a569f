//! `/templates/{id}/files/{hash}`: a link for what a COPY needs, and the upload behind it.

use std::{io, time::Duration};

use axum::{
    Json,
    extract::{Request, State},
};
use futures_util::StreamExt;
use http::StatusCode;
use serde::Serialize;
use soulbox_control::UploadTicket;

use crate::{
    router::App,
    shared::{auth::Caller, base_url::BaseUrl, error::Result, path::Segment, query::Query},
};

/// Between two pieces of an upload.
const IDLE_LIMIT: Duration = Duration::from_mins(1);

/// E2B's `TemplateBuildFileUpload`. The link is there also when the files are: a client may want to
/// upload them again.
#[derive(Debug, Serialize)]
pub(crate) struct Link {
    present: bool,
    url: String,
}

pub(crate) async fn link(
    State(app): State<App>,
    caller: Caller,
    BaseUrl(base): BaseUrl,
    Segment((template, hash)): Segment<(String, String)>,
) -> Result<(StatusCode, Json<Link>)> {
    let link = app
        .control
        .file_link(&caller.tenant, &template, &hash)
        .await?;
    let answer = Link {
        present: link.present,
        url: base + &link.path,
    };
    Ok((StatusCode::CREATED, Json(answer)))
}

/// Needs no key: the link is one.
pub(crate) async fn upload(
    State(app): State<App>,
    Segment((template, hash)): Segment<(String, String)>,
    query: Query,
    request: Request,
) -> Result<StatusCode> {
    let ticket = UploadTicket {
        template,
        hash,
        expires: query.number("expires")?.unwrap_or_default(),
        signature: query.text("signature").unwrap_or_default().to_owned(),
    };
    let body = Box::pin(request.into_body().into_data_stream());
    let pieces = futures_util::stream::unfold(Some(body), async |body| {
        let mut body = body?;
        match tokio::time::timeout(IDLE_LIMIT, body.next()).await {
            Ok(None) => None,
            Ok(Some(Ok(piece))) => Some((Ok(piece), Some(body))),
            Ok(Some(Err(error))) => Some((Err(io::Error::other(error)), None)),
            Err(_) => Some((Err(io::ErrorKind::TimedOut.into()), None)),
        }
    });
    app.control.receive_files(&ticket, pieces).await?;
    Ok(StatusCode::OK)
}
