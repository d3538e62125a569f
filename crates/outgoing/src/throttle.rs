//! Limits the work of passing on bodies that come in many small chunks: a chunk of one byte is six on
//! the wire and costs as much work as one of a thousand. Nothing is refused or cut: a sender of too
//! many is slowed down, and its own buffers fill.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::{Instant, Sleep, sleep};

/// Empty chunks a second in the long run, and as many at once for whoever had few before. More than
/// a terminal shows; a few hundredths of a core.
const RATE: u32 = 20_000;
/// A chunk of this many bytes costs half of an empty one. Where programs send much, they send such
/// chunks or larger ones.
const HALF: u64 = 4 << 10;
/// What an empty chunk costs. Others cost a fraction of it.
const TOKEN: u64 = 1 << 20;
/// Once they are used up, so many of them are waited for together.
const PAUSE: Duration = Duration::from_millis(20);

/// What a chunk costs. It falls with its size and has no edge just above which chunks are free: then
/// a sender would use that size. It never reaches zero, so that there is a most for every size: 11 MB
/// a second in chunks of 512 bytes, 160 of 4 KiB, 1.6 GB of 16 KiB, and of larger ones more than a
/// machine can send.
fn cost(bytes: usize) -> u64 {
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    (TOKEN * HALF / HALF.saturating_add(bytes)).max(1)
}

/// Tokens for chunks; bodies that share a bucket share the rate.
#[derive(Debug)]
pub struct TokenBucket {
    /// As many as it holds, and as many as it gets in a second, in parts of a token.
    size: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    left: u64,
    filled: Instant,
}

impl Default for TokenBucket {
    fn default() -> Self {
        Self::new(RATE)
    }
}

impl TokenBucket {
    /// So many empty chunks a second.
    pub fn new(rate: u32) -> Self {
        let size = u64::from(rate) * TOKEN;
        Self {
            size,
            state: Mutex::new(State {
                left: size,
                filled: Instant::now(),
            }),
        }
    }

    /// Whether so much was left.
    fn take(&self, cost: u64) -> bool {
        let mut state = self.state.lock();
        if state.left < cost {
            // The clock is only looked at when it matters.
            let now = Instant::now();
            let since = now.saturating_duration_since(state.filled);
            let fresh = since.as_nanos() * u128::from(self.size) / 1_000_000_000;
            let fresh = u64::try_from(fresh).unwrap_or(u64::MAX);
            state.left = state.left.saturating_add(fresh).min(self.size);
            state.filled = now;
        }
        match state.left.checked_sub(cost) {
            Some(left) => {
                state.left = left;
                true
            }
            None => false,
        }
    }
}

/// The throttle of one body.
#[derive(Debug, Default)]
pub struct ChunkThrottle {
    bucket: Arc<TokenBucket>,
    /// While a chunk is still to be paid for.
    owed: Option<Owed>,
}

#[derive(Debug)]
struct Owed {
    cost: u64,
    pause: Pin<Box<Sleep>>,
}

impl ChunkThrottle {
    pub fn sharing(bucket: Arc<TokenBucket>) -> Self {
        Self { bucket, owed: None }
    }

    /// A chunk came. True when there were too many: the next one has to wait.
    pub fn took(&mut self, bytes: usize) -> bool {
        let cost = cost(bytes);
        if let Some(owed) = &mut self.owed {
            // Whoever did not wait pays for both.
            owed.cost = owed.cost.saturating_add(cost).min(self.bucket.size);
            return true;
        }
        let too_many = !self.bucket.take(cost);
        if too_many {
            self.owed = Some(Owed {
                cost,
                pause: Box::pin(sleep(PAUSE)),
            });
        }
        too_many
    }

    /// Ready when the next chunk may be asked for.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(owed) = &mut self.owed {
            ready!(owed.pause.as_mut().poll(cx));
            if self.bucket.take(owed.cost) {
                self.owed = None;
            } else {
                owed.pause.as_mut().reset(Instant::now() + PAUSE);
            }
        }
        Poll::Ready(())
    }

    /// Returns when the next chunk may be asked for. Cancel-safe.
    pub async fn next(&mut self) {
        poll_fn(|cx| self.poll_next(cx)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn took_in(chunks: u32, bytes: usize) -> Duration {
        let mut throttle = ChunkThrottle::default();
        let started = Instant::now();
        for _ in 0..chunks {
            throttle.next().await;
            throttle.took(bytes);
        }
        started.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn many_tiny_chunks_come_at_the_rate_and_few_or_large_ones_at_once() {
        assert!(took_in(RATE, 1).await.is_zero());
        // Twenty gigabytes.
        assert!(took_in(10 * RATE, 100 << 10).await.is_zero());
        let ten_seconds = took_in(RATE + 10 * RATE, 1).await;
        let expected = Duration::from_secs(9)..Duration::from_secs(11);
        assert!(expected.contains(&ten_seconds), "{ten_seconds:?}");
    }

    /// Chunks just above what used to be small were free, and cost a core.
    #[tokio::test(start_paused = true)]
    async fn no_size_of_chunk_is_free() {
        for bytes in [511, 512, 513, 514, 600, 1 << 10, 1460, 2 << 10] {
            let seconds = took_in(RATE + 10 * RATE, bytes).await;
            assert!(seconds > Duration::from_secs(5), "{bytes}: {seconds:?}");
        }
    }

    #[test]
    fn the_cost_falls_with_the_size_and_never_jumps_or_ends() {
        assert_eq!(cost(0), TOKEN);
        assert_eq!(cost(4 << 10), TOKEN / 2);
        for bytes in 0..=(256 << 10) {
            let (here, next) = (cost(bytes), cost(bytes + 1));
            assert!(next <= here, "{bytes}");
            // Nowhere steeper than at the beginning.
            assert!(here - next <= TOKEN / HALF, "{bytes}: {here} to {next}");
            assert!(next > 0, "{bytes}");
        }
        assert!(cost(usize::MAX) > 0);
    }

    /// What a sender gains by larger chunks is bytes, not work for us.
    #[test]
    fn the_number_of_chunks_grows_no_faster_than_their_bytes() {
        let most = |bytes| u64::from(RATE) * TOKEN / cost(bytes);
        let rate = u64::from(RATE);
        assert!(most(513) < rate * 12 / 10);
        assert!(most(4 << 10) < rate * 21 / 10);
        assert!(most(16 << 10) < rate * 51 / 10);
        // More than a machine can send.
        assert!(most(64 << 10) * (64 << 10) > 20_000_000_000);
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_share_a_bucket_share_the_rate() {
        let bucket = Arc::new(TokenBucket::default());
        let many = (0..10).map(|_| {
            let mut throttle = ChunkThrottle::sharing(Arc::clone(&bucket));
            tokio::spawn(async move {
                for _ in 0..RATE {
                    throttle.next().await;
                    throttle.took(1);
                }
            })
        });
        let many: Vec<_> = many.collect();
        let started = Instant::now();
        for each in many {
            each.await.unwrap();
        }
        assert!(
            started.elapsed() > Duration::from_secs(8),
            "{:?}",
            started.elapsed()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn rest_fills_the_bucket_again_but_not_beyond_its_size() {
        let bucket = TokenBucket::default();
        let all = || std::iter::from_fn(|| bucket.take(TOKEN).then_some(())).count();
        assert_eq!(all(), RATE as usize);
        tokio::time::advance(Duration::from_millis(100)).await;
        assert_eq!(all(), RATE as usize / 10);
        tokio::time::advance(Duration::from_hours(1)).await;
        assert_eq!(all(), RATE as usize);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_does_not_wait_pays_for_all_that_came() {
        let bucket = Arc::new(TokenBucket::new(100));
        let mut throttle = ChunkThrottle::sharing(bucket);
        let slowed = (0..150).filter(|_| throttle.took(0)).count();
        assert_eq!(slowed, 50);
        let started = Instant::now();
        throttle.next().await;
        let waited = started.elapsed();
        assert!(waited >= Duration::from_millis(500), "{waited:?}");
        assert!(waited <= Duration::from_millis(600), "{waited:?}");
    }
}
