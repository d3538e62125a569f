//! Response bodies: whole, a part of a file, or fed by a task through a small channel.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::mpsc;

use crate::files::source::FilePart;

pub(crate) type BodyError = Box<dyn std::error::Error + Send + Sync>;

pub(crate) enum Body {
    Full(Option<Bytes>),
    /// Read when the first of it is asked for, if the kernel does not send it by itself
    /// ([`super::direct`]).
    File(Option<FilePart>),
    /// Dropped by the server when the client is gone: the sending task sees its channel closed.
    Stream(mpsc::Receiver<Result<Bytes, BodyError>>),
}

impl Body {
    pub(crate) fn empty() -> Self {
        Self::Full(None)
    }

    pub(crate) fn full(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self::Full((!bytes.is_empty()).then_some(bytes))
    }

    pub(crate) fn stream(frames: mpsc::Receiver<Result<Bytes, BodyError>>) -> Self {
        Self::Stream(frames)
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let body = self.get_mut();
        if let Self::File(part) = body
            && let Some(part) = part.take()
        {
            *body = part.stream();
        }
        match body {
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            Self::File(_) => Poll::Ready(None),
            Self::Stream(frames) => frames
                .poll_recv(cx)
                .map(|next| next.map(|r| r.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Full(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Self::File(part) => SizeHint::with_exact(part.as_ref().map_or(0, FilePart::length)),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}
