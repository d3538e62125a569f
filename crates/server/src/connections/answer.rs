//! An answer on its way: as long as its body is not through, the guest is busy.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::{Body as HttpBody, Frame, SizeHint};
use soulbox_proxy::{Body, BoxError};

use super::guests::Underway;

#[derive(Debug)]
pub(super) struct AnswerBody {
    body: Body,
    /// `None` for what comes before a tunnel.
    _underway: Option<Underway>,
}

pub(super) fn accompany(response: Response<Body>, underway: Underway) -> Response<AnswerBody> {
    let underway = if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        underway.for_good();
        None
    } else {
        Some(underway)
    };
    response.map(|body| AnswerBody {
        body,
        _underway: underway,
    })
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
