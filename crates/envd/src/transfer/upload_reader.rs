//! An upload as a blocking reader sees it.

use std::io::{self, BufRead, Read};

use bytes::{Buf, Bytes};
use tokio::sync::mpsc;

use crate::{files::upload::body::UploadBody, http::reply::Failure};

/// Chunks on their way: one is read while the next one comes.
const WAITING: usize = 2;
/// What may follow the end of an archive: tar fills its last record.
const MAX_REST: u64 = 1 << 20;

enum Chunk {
    Data(Bytes),
    /// The upload is complete. Without it the client was cut off.
    End,
}

pub(super) struct UploadSender(mpsc::Sender<Chunk>);

pub(super) struct UploadReader {
    chunks: mpsc::Receiver<Chunk>,
    current: Bytes,
    ended: bool,
}

pub(super) fn channel() -> (UploadSender, UploadReader) {
    let (sender, chunks) = mpsc::channel(WAITING);
    let reader = UploadReader {
        chunks,
        current: Bytes::new(),
        ended: false,
    };
    (UploadSender(sender), reader)
}

impl UploadSender {
    /// Hands the whole body over, or as much as the reader wants.
    pub(super) async fn forward(self, mut body: UploadBody) -> Result<(), Failure> {
        loop {
            let data = tokio::select! {
                () = self.0.closed() => return Ok(()),
                data = body.next() => data?,
            };
            let last = data.is_none();
            let chunk = data.map_or(Chunk::End, Chunk::Data);
            if self.0.send(chunk).await.is_err() || last {
                return Ok(());
            }
        }
    }
}

impl UploadReader {
    /// Takes what is left, so that the client need not see its connection broken.
    pub(super) fn finish(mut self) {
        let _cut_or_too_much = io::copy(&mut (&mut self).take(MAX_REST), &mut io::sink());
    }
}

impl BufRead for UploadReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.current.is_empty() && !self.ended {
            match self.chunks.blocking_recv() {
                Some(Chunk::Data(data)) => self.current = data,
                Some(Chunk::End) => self.ended = true,
                None => {
                    return Err(io::Error::new(
                        io::ErrorKind::ConnectionAborted,
                        "the upload broke off",
                    ));
                }
            }
        }
        Ok(&self.current)
    }

    fn consume(&mut self, amount: usize) {
        self.current.advance(amount.min(self.current.len()));
    }
}

impl Read for UploadReader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let amount = self.fill_buf()?.read(to)?;
        self.consume(amount);
        Ok(amount)
    }
}
