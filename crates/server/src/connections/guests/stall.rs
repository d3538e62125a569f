//! A client that does not take what it asked for.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use tokio_util::sync::WaitForCancellationFutureOwned;

use super::Presence;

/// Bytes wait to be written and the socket takes none, until this is dropped.
#[derive(Debug)]
pub(crate) struct Stall {
    presence: Presence,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Stall {
    pub(super) fn begin(presence: Presence) -> Self {
        presence.shared.book.lock().stall(presence.number);
        Self {
            cut: Box::pin(presence.cut.clone().cancelled_owned()),
            presence,
        }
    }

    /// Ready when it has lasted too long and the place is needed.
    pub(crate) fn poll_cut(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.cut.as_mut().poll(cx)
    }
}

impl Drop for Stall {
    fn drop(&mut self) {
        let Presence { shared, number, .. } = &self.presence;
        if shared.book.lock().flows(*number) {
            shared.changed.notify_waiters();
        }
    }
}
