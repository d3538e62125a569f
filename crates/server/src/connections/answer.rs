//! An answer on its way: as long as its body is not through, the guest is busy. If it is not through
//! since the client does not take it, that is noted. One that waits for its client after its sandbox
//! has ended is given up soon: what waits is memory that nothing else counts any more.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Response, StatusCode, Version};
use http_body::{Body as HttpBody, Frame, SizeHint};
use soulbox_proxy::{Body, BoxError, SandboxEnd};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{guests::Underway, piece::Piece, streams};

/// For a client to take what came before the end of its sandbox.
const AFTER_THE_END: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct AnswerBody {
    body: Body,
    /// `None` for what comes before a tunnel.
    underway: Option<Underway>,
    /// Of HTTP/2, which takes a piece when the client gave room for it. Otherwise the socket tells
    /// who does not read.
    by_window: bool,
    /// Ends the stream, or the connection, of an answer that waits for its client.
    _giving_up: Option<AbortOnDropHandle<()>>,
}

pub(super) fn accompany(
    mut response: Response<Body>,
    version: Version,
    mut underway: Underway,
) -> Response<AnswerBody> {
    let by_window = version == Version::HTTP_2;
    let cut = if by_window {
        streams::cut_of_this()
    } else {
        Some(underway.presence().cut().clone())
    };
    let end = response.extensions_mut().remove::<SandboxEnd>();
    let giving_up = cut.zip(end).map(|(cut, end)| give_up_after(end, cut));
    let underway = if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        underway.for_good();
        None
    } else {
        if by_window {
            underway.is_up_to_the_client();
        }
        Some(underway)
    };
    response.map(|body| AnswerBody {
        body,
        underway,
        by_window,
        _giving_up: giving_up,
    })
}

fn give_up_after(end: SandboxEnd, cut: CancellationToken) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        end.comes().await;
        tokio::time::sleep(AFTER_THE_END).await;
        tracing::debug!(
            "gave up an answer whose sandbox has ended and whose client does not take it"
        );
        cut.cancel();
    }))
}

impl HttpBody for AnswerBody {
    type Data = Piece;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, BoxError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let by_window = self.by_window;
        let mut taker = None;
        if let Some(underway) = self.underway.as_mut().filter(|_| by_window) {
            match &polled {
                Poll::Ready(Some(Ok(frame))) if has_bytes(frame) => {
                    underway.gives();
                    taker = Some(underway.presence().clone());
                }
                // The end, or what needs no room: it says nothing about the client.
                Poll::Ready(_) => {}
                Poll::Pending => underway.is_up_to_us(),
            }
        }
        polled.map_ok(|frame| frame.map_data(|data| Piece::new(data, taker)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn has_bytes(frame: &Frame<Bytes>) -> bool {
    frame.data_ref().is_some_and(|data| !data.is_empty())
}
