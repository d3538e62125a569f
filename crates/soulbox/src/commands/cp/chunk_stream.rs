//! A stream of chunks from a source to a sink.

use std::io;

use anyhow::Result;
use bytes::Bytes;
use futures_util::{Stream, stream};
use tokio::{sync::mpsc, task::JoinHandle};

use super::progress::Progress;

/// Chunks in memory at a time.
const QUEUE: usize = 8;
pub(super) const CHUNK: usize = 64 * 1024;

pub(super) type Chunks = mpsc::Receiver<io::Result<Bytes>>;
pub(super) type Sink = mpsc::Sender<io::Result<Bytes>>;

/// What a source gives. A source that fails says so in the chunks too: the sink must not take a
/// beginning for the whole.
#[derive(Debug)]
pub(super) struct ChunkStream {
    pub chunks: Chunks,
    source: JoinHandle<Result<()>>,
    progress: Option<Progress>,
}

impl ChunkStream {
    pub(super) fn spawn<F>(source: impl FnOnce(Sink) -> F) -> Self
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let (sender, chunks) = mpsc::channel(QUEUE);
        let failure = sender.clone();
        let work = source(sender);
        let source = tokio::spawn(async move {
            let result = work.await;
            if let Err(error) = &result {
                // A sink that is gone has its own error.
                failure
                    .send(Err(io::Error::other(error.to_string())))
                    .await
                    .ok();
            }
            result
        });
        Self {
            chunks,
            source,
            progress: None,
        }
    }

    pub(super) fn spawn_blocking(
        source: impl FnOnce(&Sink) -> Result<()> + Send + 'static,
    ) -> Self {
        Self::spawn(
            |sender| async move { tokio::task::spawn_blocking(move || source(&sender)).await? },
        )
    }

    pub(super) fn counted(mut self, progress: &Progress) -> Self {
        self.progress = Some(progress.clone());
        self
    }

    pub(super) async fn next(&mut self) -> io::Result<Option<Bytes>> {
        let chunk = self.chunks.recv().await.transpose()?;
        if let (Some(chunk), Some(progress)) = (&chunk, &self.progress) {
            progress.add(chunk.len());
        }
        Ok(chunk)
    }

    /// The chunks as a stream, and the outcome of the source.
    pub(super) fn split(
        self,
    ) -> (
        impl Stream<Item = io::Result<Bytes>> + Send + 'static,
        Outcome,
    ) {
        let progress = self.progress;
        let chunks = stream::unfold(
            (self.chunks, progress),
            |(mut chunks, progress)| async move {
                let chunk = chunks.recv().await?;
                if let (Ok(chunk), Some(progress)) = (&chunk, &progress) {
                    progress.add(chunk.len());
                }
                Some((chunk, (chunks, progress)))
            },
        );
        (chunks, Outcome(self.source))
    }

    /// After the last chunk: the source's own word. The sink's failure comes second, because a
    /// failed source makes the sink fail too.
    pub(super) async fn settle(self, sink: Result<()>) -> Result<()> {
        drop(self.chunks);
        Outcome(self.source).settle(sink).await
    }
}

pub(super) struct Outcome(JoinHandle<Result<()>>);

impl Outcome {
    pub(super) async fn settle(self, sink: Result<()>) -> Result<()> {
        if sink.is_err() && !self.0.is_finished() {
            // It waits for a sink that takes no more.
            self.0.abort();
            return sink;
        }
        self.0.await?.and(sink)
    }
}
