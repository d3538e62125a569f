//! Ports of a sandbox on this machine.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result};
use soulbox_client::{Client, Error, PortStream};
use soulbox_types::Chain;
use tokio::{
    io::{AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{interval, timeout},
};

use crate::{
    args::{ForwardArgs, PortPair},
    context::Server,
    interrupts::Interrupts,
    output,
    report::{advice, complaint},
};

/// Of all ports together; more wait until one of them has ended.
const MOST_CONNECTIONS: usize = 512;
/// How soon the end of a sandbox is noticed when nothing moves.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
const CHECK_LIMIT: Duration = Duration::from_secs(5);
const BUFFER: usize = 64 << 10;
/// After an error of `accept` such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub(super) async fn run(args: &ForwardArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    let sandbox = server.find(&args.sandbox).await?.listed.id;
    let forward = Arc::new(Forward {
        client: server.client.clone(),
        sandbox,
        permits: Semaphore::new(MOST_CONNECTIONS),
        last_complaint: Mutex::default(),
    });
    let mut interrupts = Interrupts::listen()?;
    let mut listening = tokio::task::JoinSet::new();
    for pair in &args.ports {
        let listener = listen(args, *pair).await?;
        let address = listener.local_addr()?;
        let line = format!("http://{address} -> {}:{}", forward.sandbox, pair.remote);
        output::text(&output::printable(&line))?;
        listening.spawn(Arc::clone(&forward).accept(listener, pair.remote));
    }
    tokio::select! {
        _code = interrupts.next() => Ok(0),
        () = forward.gone() => {
            let message = format!("sandbox {} has ended", forward.sandbox);
            Err(advice(message, "`soulbox ls` shows the sandboxes that run"))
        }
    }
}

async fn listen(args: &ForwardArgs, pair: PortPair) -> Result<TcpListener> {
    let wanted = pair.local.unwrap_or(pair.remote);
    match TcpListener::bind((args.address, wanted)).await {
        Err(error) if pair.local.is_none() && is_not_ours(&error) => {
            TcpListener::bind((args.address, 0)).await
        }
        other => other,
    }
    .with_context(|| format!("cannot listen on {} port {wanted}", args.address))
}

/// Taken, or only for root.
fn is_not_ours(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied
    )
}

struct Forward {
    client: Client,
    sandbox: String,
    permits: Semaphore,
    /// A client that tries again and again need not be told again and again.
    last_complaint: Mutex<Option<String>>,
}

impl Forward {
    async fn accept(self: Arc<Self>, listener: TcpListener, port: u16) {
        let mut connections = tokio::task::JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            // It is never closed.
            let Ok(permit) = self.permits.acquire().await else {
                return;
            };
            let Ok((local, _)) = listener.accept().await else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            permit.forget();
            let forward = Arc::clone(&self);
            connections.spawn(async move {
                forward.pass(local, port).await;
                forward.permits.add_permits(1);
            });
        }
    }

    async fn pass(&self, mut local: TcpStream, port: u16) {
        let remote = match self.client.open_port(&self.sandbox, port).await {
            Ok(remote) => remote,
            Err(error) => {
                self.complain(port, &error);
                reset(&local);
                return;
            }
        };
        self.last_complaint().take();
        // What is typed must not wait for Nagle; without the option it is only slower.
        local.set_nodelay(true).ok();
        if self.copy(&mut local, remote).await.is_err() {
            reset(&local);
        }
    }

    /// Until both sides have finished; either may finish writing and still read.
    async fn copy(&self, local: &mut TcpStream, remote: PortStream) -> io::Result<()> {
        let (mut from_remote, mut to_remote) = tokio::io::split(remote);
        let (mut from_local, mut to_local) = local.split();
        let up = async {
            let mut from_local = BufReader::with_capacity(BUFFER, &mut from_local);
            tokio::io::copy_buf(&mut from_local, &mut to_remote).await?;
            to_remote.shutdown().await
        };
        let down = async {
            let mut from_remote = BufReader::with_capacity(BUFFER, &mut from_remote);
            tokio::io::copy_buf(&mut from_remote, &mut to_local).await?;
            // A killed or paused sandbox's connections end like those of a server that is done: whoever reads
            // here must not take half of an answer for the whole.
            if self.is_cut().await {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            to_local.shutdown().await
        };
        tokio::try_join!(up, down).map(drop)
    }

    fn last_complaint(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        let last = self.last_complaint.lock();
        last.unwrap_or_else(PoisonError::into_inner)
    }

    fn complain(&self, port: u16, error: &Error) {
        let sandbox = &self.sandbox;
        let message = if error.is_closed_port() {
            format!("nothing listens on port {port} of sandbox {sandbox}")
        } else {
            format!(
                "no connection to port {port} of sandbox {sandbox}: {}",
                Chain(error)
            )
        };
        let mut last = self.last_complaint();
        if last.as_ref() != Some(&message) {
            complaint(&message);
            *last = Some(message);
        }
    }

    /// Only when the server says so.
    async fn is_gone(&self) -> bool {
        let asked = timeout(CHECK_LIMIT, self.client.sandbox(&self.sandbox)).await;
        matches!(asked, Ok(Err(error)) if error.is_not_found())
    }

    /// By an end or a pause.
    async fn is_cut(&self) -> bool {
        match timeout(CHECK_LIMIT, self.client.sandbox(&self.sandbox)).await {
            Ok(Ok(found)) => found.listed.state == "paused",
            Ok(Err(error)) => error.is_not_found(),
            Err(_) => false,
        }
    }

    async fn gone(&self) {
        let mut checks = interval(CHECK_INTERVAL);
        loop {
            checks.tick().await;
            if self.is_gone().await {
                return;
            }
        }
    }
}

/// Closed with a reset: whoever connected sees that something failed.
fn reset(local: &TcpStream) {
    local.set_zero_linger().ok();
}
