//! The recent output of one process, and how far each subscriber has read.
//!
//! ```text
//!   start            slow reader         fast reader     end
//!   │ chunk │ chunk │ chunk │ … │ chunk │ chunk │ chunk │
//!   └────────────── at most `capacity` ─────────────────┘
//! ```
//! Positions only grow. The process is held back only when the *fastest* reader is a whole ring
//! behind: a slow one falls out of the ring and is cut, and without readers the ring just rolls.

use std::{cell::Cell, collections::VecDeque, rc::Rc};

use bytes::Bytes;

use crate::proto::OutputStream;

const CAPACITY: u64 = 256 << 10;
/// When all rings together pass the budget, each may only hold this much.
const TIGHT_CAPACITY: u64 = 32 << 10;
const BUDGET: u64 = 8 << 20;
/// What a chunk costs besides its bytes: many tiny ones must not make the ring huge.
const OVERHEAD: u64 = 96;

struct Chunk {
    stream: OutputStream,
    at: u64,
    bytes: Bytes,
}

impl Chunk {
    fn weight(&self) -> u64 {
        self.bytes.len() as u64 + OVERHEAD
    }
}

pub(crate) enum Next {
    Chunk(OutputStream, Bytes),
    Nothing,
    /// The reader fell out of the ring.
    Lost,
}

/// Bytes in all rings together.
pub(super) type Budget = Rc<Cell<u64>>;

pub(super) struct Ring {
    chunks: VecDeque<Chunk>,
    end: u64,
    readers: Vec<(u64, u64)>,
    next_reader: u64,
    held: u64,
    budget: Budget,
}

impl Ring {
    pub(super) fn new(budget: Budget) -> Self {
        Self {
            chunks: VecDeque::new(),
            end: 0,
            readers: Vec::new(),
            next_reader: 0,
            held: 0,
            budget,
        }
    }

    fn start(&self) -> u64 {
        self.chunks.front().map_or(self.end, |chunk| chunk.at)
    }

    fn capacity(&self) -> u64 {
        if self.budget.get() > BUDGET {
            TIGHT_CAPACITY
        } else {
            CAPACITY
        }
    }

    /// Whether the next read from the process may happen now.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let Some(fastest) = self.readers.iter().map(|(_, at)| *at).max() else {
            return true;
        };
        let behind = self.end - fastest;
        behind == 0 || behind + bytes as u64 + OVERHEAD <= self.capacity()
    }

    pub(super) fn push(&mut self, stream: OutputStream, bytes: Bytes) {
        let chunk = Chunk {
            stream,
            at: self.end,
            bytes,
        };
        let weight = chunk.weight();
        self.end += weight;
        self.hold(weight);
        self.chunks.push_back(chunk);
        while self.held > self.capacity() && self.chunks.len() > 1 {
            self.drop_oldest();
        }
    }

    pub(super) fn clear(&mut self) {
        while !self.chunks.is_empty() {
            self.drop_oldest();
        }
        self.chunks.shrink_to_fit();
    }

    fn drop_oldest(&mut self) {
        if let Some(chunk) = self.chunks.pop_front() {
            let weight = chunk.weight();
            self.held -= weight;
            self.budget.set(self.budget.get() - weight);
        }
    }

    fn hold(&mut self, weight: u64) {
        self.held += weight;
        self.budget.set(self.budget.get() + weight);
    }

    /// A new reader: of everything from now on, or also of what the ring still holds.
    pub(super) fn subscribe(&mut self, replay: bool) -> u64 {
        let id = self.next_reader;
        self.next_reader += 1;
        self.readers
            .push((id, if replay { self.start() } else { self.end }));
        id
    }

    pub(super) fn unsubscribe(&mut self, id: u64) {
        self.readers.retain(|(reader, _)| *reader != id);
    }

    pub(super) fn next(&mut self, id: u64) -> Next {
        let start = self.start();
        let Some((_, at)) = self.readers.iter_mut().find(|(reader, _)| *reader == id) else {
            return Next::Lost;
        };
        if *at < start {
            return Next::Lost;
        }
        let index = self.chunks.partition_point(|chunk| chunk.at < *at);
        let Some(chunk) = self.chunks.get(index) else {
            return Next::Nothing;
        };
        *at = chunk.at + chunk.weight();
        Next::Chunk(chunk.stream, chunk.bytes.clone())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: usize = 32 << 10;

    fn ring() -> Ring {
        Ring::new(Budget::default())
    }

    fn push(ring: &mut Ring, byte: u8) {
        ring.push(OutputStream::Stdout, Bytes::from(vec![byte; CHUNK]));
    }

    fn first_byte(next: Next) -> u8 {
        match next {
            Next::Chunk(_, bytes) => bytes[0],
            Next::Nothing => panic!("nothing to read"),
            Next::Lost => panic!("reader was lost"),
        }
    }

    #[test]
    fn without_readers_there_is_always_room_and_the_oldest_goes() {
        let mut ring = ring();
        for i in 0..100 {
            assert!(ring.has_room(CHUNK));
            push(&mut ring, i);
        }
        assert!(ring.held <= CAPACITY);
        let replaying = ring.subscribe(true);
        assert_eq!(first_byte(ring.next(replaying)), 93);
    }

    #[test]
    fn a_new_reader_sees_only_what_comes_after_it() {
        let mut ring = ring();
        push(&mut ring, 1);
        let reader = ring.subscribe(false);
        assert!(matches!(ring.next(reader), Next::Nothing));
        push(&mut ring, 2);
        assert_eq!(first_byte(ring.next(reader)), 2);
    }

    #[test]
    fn only_the_fastest_reader_holds_the_process_back() {
        let mut ring = ring();
        let (fast, slow) = (ring.subscribe(false), ring.subscribe(false));
        while ring.has_room(CHUNK) {
            push(&mut ring, 7);
        }
        assert!(
            ring.held > CAPACITY / 2,
            "the ring is filled before anybody waits"
        );
        for _ in 0..20 {
            assert_eq!(first_byte(ring.next(fast)), 7);
            assert!(
                ring.has_room(CHUNK),
                "one step of the fastest makes room for one chunk"
            );
            push(&mut ring, 7);
        }
        assert!(matches!(ring.next(slow), Next::Lost));
        ring.unsubscribe(fast);
        ring.unsubscribe(slow);
        assert!(ring.has_room(CHUNK));
    }

    #[test]
    fn all_rings_together_stay_near_the_budget() {
        let budget = Budget::default();
        let mut rings: Vec<_> = (0..200).map(|_| Ring::new(Rc::clone(&budget))).collect();
        for _ in 0..20 {
            for ring in &mut rings {
                push(ring, 0);
            }
        }
        assert!(budget.get() < BUDGET + 200 * (CHUNK as u64 + OVERHEAD));
        drop(rings);
        assert_eq!(budget.get(), 0);
    }

    #[test]
    fn tiny_chunks_cannot_grow_the_ring() {
        let mut ring = ring();
        for _ in 0..100_000 {
            ring.push(OutputStream::Stderr, Bytes::from_static(b"x"));
        }
        assert!(ring.chunks.len() < 3_000);
    }
}
