//! A piece of an answer that notes when some of it is taken: over HTTP/2 it waits until the client has
//! room for it, long after it was handed over.

use std::{io::IoSlice, time::Duration};

use bytes::{Buf, Bytes};
use tokio::time::Instant;

use super::guests::Presence;

/// How exact it has to be when a client last took something.
const TELL_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Piece {
    data: Bytes,
    /// Who is to be told.
    taker: Option<Presence>,
    told: Option<Instant>,
}

impl Piece {
    pub(super) fn new(data: Bytes, taker: Option<Presence>) -> Self {
        Self {
            data,
            taker,
            told: None,
        }
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.data.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.data.chunk()
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.data.chunks_vectored(slices)
    }

    fn advance(&mut self, count: usize) {
        self.data.advance(count);
        if count > 0
            && let Some(taker) = &self.taker
            && self.told.is_none_or(|told| told.elapsed() >= TELL_EVERY)
        {
            taker.takes();
            self.told = Some(Instant::now());
        }
    }
}
