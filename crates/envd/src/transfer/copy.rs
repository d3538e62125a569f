//! `POST /soulbox/copy`: receives an archive, unpacks it and moves the files to their target.

use std::rc::Rc;

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;

use super::{
    Abandoned, Error,
    archive::{Archive, decompress},
    extract::Extractor,
    place::place,
    request::CopyRequest,
    scratch::Scratch,
    upload_reader::{self, UploadReader},
};
use crate::{
    files::upload::body::UploadBody,
    http::{body::Body, reply::Failure},
    state::Envd,
};

/// As `COPY` of a template's build. The query has `src`, `dest`, `owner`, `mode`, `workdir`, `user`
/// and `keep_owners`; the body is a tar, plain or gzip.
pub(crate) async fn handle(
    envd: &Rc<Envd>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Failure> {
    let (parts, body) = request.into_parts();
    let body = UploadBody::new(body);
    let request = CopyRequest::parse(parts.uri.query())?;
    let (sender, upload) = upload_reader::channel();
    let copied = envd
        .transfers
        .run(move |abandoned| copy(&request, upload, abandoned))
        .await?;
    sender.forward(body).await?;
    let died = |_| {
        Failure::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the copy ended unexpectedly",
        )
    };
    copied.await.map_err(died)??;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

fn copy(
    request: &CopyRequest,
    mut upload: UploadReader,
    abandoned: Abandoned<'_>,
) -> Result<(), Error> {
    let scratch = Scratch::near(&request.target.path).map_err(scratch_failed)?;
    let root = scratch.open().map_err(scratch_failed)?;
    let top = root.try_clone().map_err(scratch_failed)?;
    let extractor = Extractor::new(root, request.ownership, request.mode, abandoned);
    let unpacked = extractor.unpack(&mut Archive::new(decompress(&mut upload)?))?;
    upload.finish();
    place(&top, &unpacked, request, abandoned)
}

fn scratch_failed(source: std::io::Error) -> Error {
    Error::Extract {
        what: "making a scratch directory".to_owned(),
        source,
    }
}
