//! The steps of a start: each of them succeeds, or fails with an error that says what to do.

use std::{io::Write, net::IpAddr, path::Path, pin::pin, time::Duration};

use anyhow::{Context, bail};
use soulbox_types::Secret;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    AcmeChallenge, Config,
    data_dir::DataDir,
    env_files::{self, Endpoints},
    listen::bind,
    logging, names, open_files, own_limits,
    preflight::{keeps_something, preflight},
    program_name, quick_start,
    running::{Addresses, Listeners, Parts, run},
    service_manager::ServiceManager,
    start_progress::StartProgress,
    tls::{self, Tls},
    wiring::{self, Startup, Stopped, check_stop},
};

/// For a start that is building the first template, or has to adopt sandboxes before it can release
/// them.
const ABANDON_TIMEOUT: Duration = Duration::from_mins(1);

/// Runs the server until `shutdown` (see [`shutdown_signal`]) or an error.
pub async fn serve(
    config: Config,
    manager: &ServiceManager,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    logging::init(&config.log, config.log_format)?;
    let stop = CancellationToken::new();
    let asking = manager.ask_for_time();
    let (mut shutdown, mut starting) = (pin!(shutdown), Box::pin(start(&config, manager, &stop)));
    let started = tokio::select! {
        biased;
        () = shutdown.as_mut() => {
            stop.cancel();
            manager.stopping().await;
            return abandon(starting).await;
        }
        started = starting.as_mut() => started,
    };
    drop(asking);
    let started = match started {
        Ok(started) => started,
        Err(error) => {
            manager.status(&format!("not started: {error:#}")).await;
            return Err(error);
        }
    };
    let Started {
        listeners,
        parts,
        data_dir,
    } = started;
    let ready = listeners.addresses().map_or_else(
        |_| "ready".to_owned(),
        |listening| format!("ready on http://{}", listening.http),
    );
    manager.ready(&ready).await;
    let shutdown = async {
        shutdown.await;
        manager.stopping().await;
    };
    run(listeners, &config.domain, parts, shutdown).await;
    drop(data_dir);
    Ok(())
}

/// Undoes what an interrupted start has put on the machine so far.
async fn abandon(start: impl Future<Output = anyhow::Result<Started>>) -> anyhow::Result<()> {
    let undone = async {
        match start.await {
            // The start was complete before the stop.
            Ok(Started { parts, .. }) => parts.close.await,
            Err(error) if error.is::<Stopped>() => {}
            Err(error) => return Err(error),
        }
        tracing::info!("stopped before the start was complete; sandboxes go on");
        Ok(())
    };
    let ended = tokio::time::timeout(ABANDON_TIMEOUT, undone).await;
    ended.unwrap_or_else(|_elapsed| {
        tracing::warn!("stopped in the middle of the start; the next one clears up");
        Ok(())
    })
}

struct Started {
    listeners: Listeners,
    parts: Parts,
    data_dir: DataDir,
}

async fn start(
    config: &Config,
    manager: &ServiceManager,
    stop: &CancellationToken,
) -> anyhow::Result<Started> {
    if !rustix::process::geteuid().is_root() {
        bail!(
            "sandboxes need root: run `sudo soulbox serve` (what they run is never root on this machine)"
        );
    }
    open_files::raise_limit()?;
    own_limits::lift()?;
    if let Err(problem) = soulbox_doctor::file_size_limit() {
        bail!("{problem}");
    }
    let data_dir = DataDir::open(&config.data_dir)?;
    open_files::check_for_sandboxes(&wiring::sandboxes_dir(config))?;
    preflight(&config.data_dir, config.min_free_disk).await?;
    check_stop(stop)?;
    let listeners = listen(config).await?;
    let seed = data_dir.seed()?;
    let endpoints = endpoints(config, &listeners)?;
    let sandbox_domain = endpoints
        .tls_domain()
        .unwrap_or_else(|| config.domain.clone());
    let known_key = env_files::known_key(&config.data_dir)?;
    let progress = &StartProgress::begin(&config.data_dir);
    let startup = Startup {
        manager,
        progress,
        stop,
    };
    let (parts, key) = wiring::assemble(config, sandbox_domain, seed, known_key, startup).await?;
    if let Err(error) = announce(config, &data_dir, &listeners, &endpoints, key.as_ref()) {
        parts.close.await;
        return Err(error);
    }
    progress.done();
    Ok(Started {
        listeners,
        parts,
        data_dir,
    })
}

/// Completes at the first SIGTERM or SIGINT after this call; not after its first poll: a signal
/// during the start must not be lost, nor end the process half-way.
pub fn shutdown_signal() -> impl Future<Output = ()> + Send {
    use tokio::signal::unix::{SignalKind, signal};
    let signals = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    );
    async move {
        match signals {
            (Ok(mut terminate), Ok(mut interrupt)) => {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
            }
            (Err(error), _) | (_, Err(error)) => {
                tracing::error!(%error, "signals cannot be awaited: only SIGKILL ends this server");
                std::future::pending::<()>().await;
            }
        }
    }
}

async fn listen(config: &Config) -> anyhow::Result<Listeners> {
    let http = bind(config.listen, "--listen")?;
    let admin = config
        .admin
        .map(|address| bind(address, "--admin"))
        .transpose()?;
    let https = match config.https {
        None => None,
        Some(address) => {
            let listener = bind(address, "--https")?;
            let tls = Tls::load(tls_source(config, address.ip()))?;
            let tls = match &config.acme {
                Some(acme) => tls.with_acme(acme, &config.data_dir),
                None => tls,
            };
            Some((listener, tls))
        }
    };
    Ok(Listeners {
        http,
        https,
        admin,
        names: names::bind(config).await?,
        challenges: challenge_listener(config),
    })
}

/// Without it no certificate is issued, which is no reason not to start.
fn challenge_listener(config: &Config) -> Option<TcpListener> {
    let address = config.acme.as_ref()?.http?;
    match bind(address, "--acme-http") {
        Ok(listener) => Some(listener),
        Err(error) => {
            let error = format!("{error:#}");
            tracing::error!(
                error,
                "an ACME server's questions are answered on --listen alone"
            );
            None
        }
    }
}

fn tls_source(config: &Config, listening_on: IpAddr) -> tls::Source {
    match &config.own_certificate {
        Some((certificate, key)) => tls::Source::Own {
            certificate: certificate.clone(),
            key: key.clone(),
        },
        None => tls::Source::Local {
            dir: tls::folder(&config.data_dir),
            domain: config.domain.clone(),
            addresses: Some(listening_on)
                .filter(|address| !address.is_unspecified() && !address.is_loopback())
                .into_iter()
                .collect(),
        },
    }
}

/// The addresses for clients, now that the real ports are known.
fn endpoints(config: &Config, listeners: &Listeners) -> anyhow::Result<Endpoints> {
    let addresses = listeners.addresses()?;
    let challenge = config.acme.as_ref().map(|acme| acme.challenge);
    Ok(Endpoints {
        http: addresses.http,
        https: addresses.https,
        domain: config.domain.clone(),
        trust: config
            .https
            .and_then(|https| tls::trust_files(&tls_source(config, https.ip()))),
        needs_local_ca: config.own_certificate.is_none() && challenge != Some(AcmeChallenge::Dns01),
        only_two_names: challenge == Some(AcmeChallenge::Http01),
    })
}

/// Reports to users and programs where the server listens.
fn announce(
    config: &Config,
    data_dir: &DataDir,
    listeners: &Listeners,
    endpoints: &Endpoints,
    key: Option<&Secret>,
) -> anyhow::Result<()> {
    let dir = &config.data_dir;
    if endpoints.trust.is_some() {
        data_dir.share(&tls::folder(dir))?;
    }
    if key.is_none() {
        tracing::warn!(
            "no valid API key is in {} any more: make a new one with `soulbox key create`",
            env_files::path(dir).display()
        );
    }
    if let Err(error) = env_files::write(dir, key, endpoints) {
        let path = env_files::path(dir);
        let full = matches!(
            error.kind(),
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
        );
        if !full || !keeps_something(dir) {
            return Err(error).with_context(|| format!("could not write {}", path.display()));
        }
        // Without a server, what fills the disk could not be removed.
        tracing::warn!(%error, "{} was not written and may be out of date", path.display());
    }
    if let Err(error) = names::write(config, endpoints, listeners.addresses()?.dns) {
        tracing::warn!(%error, "`soulbox trust` will not find what it needs");
    }
    print_quick_start(dir, endpoints, &listeners.addresses()?);
    Ok(())
}

fn print_quick_start(dir: &Path, endpoints: &Endpoints, bound: &Addresses) {
    let as_other_user = std::env::var_os("SUDO_USER").is_some_and(|user| user != "root");
    let program = program_name::callable();
    let answers_names = bound.dns.is_some();
    let lines = quick_start::lines(
        dir,
        endpoints,
        bound.admin,
        answers_names,
        as_other_user,
        &program,
    );
    // Standard output may be closed.
    if let Err(error) = writeln!(std::io::stdout(), "{}", lines.join("\n")) {
        tracing::debug!(%error, "the quick start was not printed");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::process::{Signal, getpid, kill_process};

    use super::*;

    #[tokio::test]
    async fn a_signal_during_the_start_is_not_lost() {
        let stop = shutdown_signal();
        kill_process(getpid(), Signal::TERM).unwrap();
        tokio::time::timeout(Duration::from_secs(10), stop)
            .await
            .unwrap();
    }
}
