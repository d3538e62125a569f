//! Limits the rate of tiny chunks: a chunk of one byte is six on the wire and costs as much work as
//! one of a thousand. Nothing is refused or cut: a sender of too many is slowed down, and its own
//! buffers fill.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::{Instant, Sleep, sleep};

/// Below this many bytes a chunk costs more to pass on than its bytes do.
const SMALL: usize = 512;
/// Small chunks a second in the long run, and as many at once for whoever had few before. More than
/// a terminal shows; a few hundredths of a core.
const RATE: u32 = 20_000;
/// Once they are used up, so many of them are waited for together.
const PAUSE: Duration = Duration::from_millis(20);

/// Tokens for small chunks; bodies that share a bucket share the rate.
#[derive(Debug)]
pub struct TokenBucket {
    rate: u32,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    left: u32,
    filled: Instant,
}

impl Default for TokenBucket {
    fn default() -> Self {
        Self::new(RATE)
    }
}

impl TokenBucket {
    /// So many a second.
    pub fn new(rate: u32) -> Self {
        Self {
            rate,
            state: Mutex::new(State {
                left: rate,
                filled: Instant::now(),
            }),
        }
    }

    /// Whether there was one left.
    fn take(&self) -> bool {
        let mut state = self.state.lock();
        if state.left == 0 {
            let since = state.filled.elapsed();
            let fresh = since.as_millis() * u128::from(self.rate) / 1000;
            let fresh = u32::try_from(fresh).unwrap_or(u32::MAX).min(self.rate);
            if fresh == 0 {
                return false;
            }
            state.left = fresh;
            state.filled = Instant::now();
        }
        state.left -= 1;
        true
    }
}

/// The throttle of one body.
#[derive(Debug, Default)]
pub struct ChunkThrottle {
    bucket: Arc<TokenBucket>,
    /// While a chunk still needs a token.
    pause: Option<Pin<Box<Sleep>>>,
}

impl ChunkThrottle {
    pub fn sharing(bucket: Arc<TokenBucket>) -> Self {
        Self {
            bucket,
            pause: None,
        }
    }

    /// A chunk came. True when there were too many: the next one has to wait.
    pub fn took(&mut self, bytes: usize) -> bool {
        let too_many = bytes < SMALL && !self.bucket.take();
        if too_many && self.pause.is_none() {
            self.pause = Some(Box::pin(sleep(PAUSE)));
        }
        too_many
    }

    /// Ready when the next chunk may be asked for.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            if self.bucket.take() {
                self.pause = None;
            } else {
                pause.as_mut().reset(Instant::now() + PAUSE);
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
        assert!(took_in(100 * RATE, SMALL).await.is_zero());
        let ten_seconds = took_in(RATE + 10 * RATE, 1).await;
        let expected = Duration::from_secs(9)..Duration::from_secs(11);
        assert!(expected.contains(&ten_seconds), "{ten_seconds:?}");
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
        let all = || std::iter::from_fn(|| bucket.take().then_some(())).count();
        assert_eq!(all(), RATE as usize);
        tokio::time::advance(Duration::from_millis(100)).await;
        assert_eq!(all(), RATE as usize / 10);
        tokio::time::advance(Duration::from_hours(1)).await;
        assert_eq!(all(), RATE as usize);
    }
}
