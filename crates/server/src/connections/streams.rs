//! The streams of HTTP/2, each in a task that can be ended from outside. hyper does not poll a response's
//! body while it waits for window, so the body itself cannot time out. A stream whose task ends is
//! reset.

use hyper::rt::Executor;
use tokio_util::sync::CancellationToken;

tokio::task_local! {
    static RESET: CancellationToken;
}

#[derive(Debug, Clone, Copy)]
pub(super) struct StreamExecutor;

impl<S> Executor<S> for StreamExecutor
where
    S: Future + Send + 'static,
    S::Output: Send,
{
    fn execute(&self, stream: S) {
        let reset = CancellationToken::new();
        let stream = reset.clone().run_until_cancelled_owned(stream);
        tokio::spawn(RESET.scope(reset, stream));
    }
}

/// Resets the stream that this is called in.
pub(super) fn reset_of_this_stream() -> Option<CancellationToken> {
    RESET.try_with(CancellationToken::clone).ok()
}
