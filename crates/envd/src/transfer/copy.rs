//! `POST /soulbox/copy`: an archive in, and what it holds put where it belongs.

use std::rc::Rc;

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;

use super::{
    Abandoned, Error,
    archive::{Archive, decompress},
    extract::Extractor,
    feed::{self, Feed},
    place::place,
    request::Wish,
    scratch::Scratch,
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
    let wish = Wish::parse(parts.uri.query())?;
    let (feeder, feed) = feed::channel();
    let copied = envd
        .transfers
        .run(move |abandoned| copy(&wish, feed, abandoned))
        .await?;
    feeder.forward(body).await?;
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

fn copy(wish: &Wish, mut feed: Feed, abandoned: Abandoned<'_>) -> Result<(), Error> {
    let scratch = Scratch::near(&wish.target.path).map_err(scratch_failed)?;
    let root = scratch.open().map_err(scratch_failed)?;
    let top = root.try_clone().map_err(scratch_failed)?;
    let extractor = Extractor::new(root, wish.ownership, wish.mode, abandoned);
    let unpacked = extractor.unpack(&mut Archive::new(decompress(&mut feed)?))?;
    feed.finish();
    place(&top, &unpacked, wish, abandoned)
}

fn scratch_failed(source: std::io::Error) -> Error {
    Error::Extract {
        what: "making a scratch directory".to_owned(),
        source,
    }
}
