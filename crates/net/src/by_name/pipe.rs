//! Bytes in both directions, until both have ended or nothing has moved for long.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// What is read is written before more is read: whoever reads slowly slows the sender.
const BUFFER: usize = 16 << 10;
/// As for streams into sandboxes.
const IDLE: Duration = Duration::from_hours(1);

pub(super) async fn pipe(client: &mut TcpStream, server: &mut TcpStream) -> io::Result<()> {
    let moved = LastMove::new();
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let both = async {
        tokio::try_join!(
            copy(&mut from_client, &mut to_server, &moved),
            copy(&mut from_server, &mut to_client, &moved),
        )
    };
    tokio::select! {
        done = both => done.map(drop),
        () = moved.idle(IDLE) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// To the end of the one, which is then the end of the other.
async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    moved: &LastMove,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let length = from.read(&mut buffer).await?;
        moved.now();
        if length == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..length]).await?;
        moved.now();
    }
}

struct LastMove {
    start: Instant,
    millis: AtomicU64,
}

impl LastMove {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            millis: AtomicU64::new(0),
        }
    }

    fn now(&self) {
        let millis = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.millis.store(millis, Relaxed);
    }

    async fn idle(&self, limit: Duration) {
        loop {
            let until = self.start + Duration::from_millis(self.millis.load(Relaxed)) + limit;
            if Instant::now() >= until {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }
}
