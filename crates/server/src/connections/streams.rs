//! The streams of HTTP/2, each in a task that can be ended from outside. hyper asks for more of an
//! answer only when the client has room for it: one who gives none would keep the stream, with all
//! that waits for it, for as long as it likes. A stream whose task ends is reset.

use hyper::rt::Executor;
use tokio_util::sync::CancellationToken;

tokio::task_local! {
    static CUT: CancellationToken;
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Streams;

impl<S> Executor<S> for Streams
where
    S: Future + Send + 'static,
    S::Output: Send,
{
    fn execute(&self, stream: S) {
        let cut = CancellationToken::new();
        let stream = cut.clone().run_until_cancelled_owned(stream);
        tokio::spawn(CUT.scope(cut, stream));
    }
}

/// Ends the stream that this is called in.
pub(super) fn cut_of_this() -> Option<CancellationToken> {
    CUT.try_with(CancellationToken::clone).ok()
}
