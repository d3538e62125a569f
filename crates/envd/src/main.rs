//! `soulbox-envd`: the daemon inside every sandbox. It speaks E2B's envd protocol.
//!
//! It is pid 1 of its sandbox: it must never end on its own account, reaps every orphan, and stays
//! small, because every sandbox pays for it.
//!
//! # Layout
//! - [`http`]: the server and its routes; [`connect`]: the Connect protocol; [`proto`]: its messages
//! - [`rpc`]: the process and file-system services; [`files`]: whole files over plain HTTP
//! - [`transfer`]: whole trees in and out, for the node; [`removal`]: trees, however deep, away
//! - [`process`]: starting, following and reaping; [`watch`]: inotify
//! - [`sftp`]: an SFTP server, as a program of its own in this one
//! - [`control`]: health, metrics and `/init`; [`state`]: what all of them share

mod auth;
mod connect;
mod control;
mod files;
mod http;
mod logs;
mod memory;
mod metrics;
mod paths;
mod poll;
mod process;
mod proto;
mod removal;
mod rpc;
mod sftp;
mod startup;
mod state;
mod time;
mod transfer;
mod users;
mod watch;

use std::{io, process::ExitCode, rc::Rc};

use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
    task::LocalSet,
};

use crate::{
    startup::{Options, Startup},
    state::Envd,
};

fn main() -> ExitCode {
    if std::env::args_os()
        .next()
        .is_some_and(|name| name == sftp::PROGRAM)
    {
        // Whoever asked has closed its side, or sent what no client sends.
        return match sftp::serve(io::stdin().lock(), io::stdout().lock()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("soulbox-envd: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), startup::Error> {
    let Some(options) = Options::parse(std::env::args().skip(1))? else {
        println!("soulbox-envd {}", soulbox_types::ENVD_VERSION);
        return Ok(());
    };
    let startup = Startup::new(&options)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(startup::Error::Runtime)?;
    LocalSet::new().block_on(&runtime, serve(options, startup))
}

async fn serve(options: Options, startup: Startup) -> Result<(), startup::Error> {
    let child_died = signal(SignalKind::child()).map_err(startup::Error::Runtime)?;
    let shutdown_signals = ShutdownSignals::new().map_err(startup::Error::Runtime)?;

    let listener = TcpListener::bind(("0.0.0.0", options.port))
        .await
        .map_err(|e| startup::Error::Listen(options.port, e))?;
    soulbox_sys::send_unpaced(&listener);
    let Startup { config, ready } = startup;
    // Anywhere but in a sandbox, /run is somebody else's.
    let markers = if startup::is_init() {
        control::write_marker_files(&config.sandbox_id, &config.template_id)
    } else {
        Ok(())
    };
    let envd = Rc::new(Envd::new(config));
    if let Err(error) = markers {
        envd.logs.warn(
            "envd",
            "cannot write /run/e2b",
            [("error", error.to_string())],
        );
    }
    tokio::task::spawn_local(process::reaper::run(Rc::clone(&envd), child_died));
    tokio::task::spawn_local(http::serve(Rc::clone(&envd), listener));
    envd.logs.info("envd", "ready", []);
    startup::signal_ready(ready);

    shutdown_signals.wait().await;
    envd.processes.kill_all();
    Ok(())
}

/// The signals that end an envd which is not the first process.
///
/// The first process of a sandbox has none: only the node, from outside, ends it.
struct ShutdownSignals(Option<[Signal; 2]>);

impl ShutdownSignals {
    fn new() -> io::Result<Self> {
        if startup::is_init() {
            process::disposition::ignore_all_but_child_deaths();
            return Ok(Self(None));
        }
        Ok(Self(Some([
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
        ])))
    }

    async fn wait(self) {
        match self.0 {
            Some([mut terminate, mut interrupt]) => tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            },
            None => std::future::pending().await,
        }
    }
}
