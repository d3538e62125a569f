//! The start: kernels up first, then the port. Whoever is answered finds a kernel that is ready.

use std::{fs, io, os::unix::fs::DirBuilderExt, rc::Rc};

use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

use crate::{
    contexts::Contexts,
    http,
    kernel::{Folders, Launcher},
    language::Language,
    options::{self, Options},
    supervise,
};

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Options(#[from] options::Error),
    #[error("the runtime cannot be made: {0}")]
    Runtime(io::Error),
    #[error("the state folder cannot be made: {0}")]
    State(io::Error),
    #[error("port {0} cannot be listened on: {1}")]
    Listen(u16, io::Error),
    #[error("the supervisor failed: {0}")]
    Supervise(io::Error),
}

/// What every request may need.
pub(crate) struct Server {
    pub(crate) options: Options,
    pub(crate) contexts: Contexts,
}

pub(crate) async fn serve(options: Options) -> Result<(), Error> {
    supervise::end_with_supervisor();
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::Runtime)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Runtime)?;
    empty_folder(&options.state).map_err(Error::State)?;
    let listener = TcpListener::bind(("0.0.0.0", options.port))
        .await
        .map_err(|e| Error::Listen(options.port, e))?;

    let folders = Folders::new(&options.files, |name| std::env::var(name).ok());
    let launcher = Rc::new(Launcher::new(
        folders,
        options.state.join("kernels"),
        options.zygotes,
    ));
    let server = Rc::new(Server {
        contexts: Contexts::new(launcher, options.home.clone()),
        options,
    });
    // A sandbox without one of these languages still has the others.
    if let Err(error) = server.contexts.default(&Language::python()).await {
        eprintln!("soulbox-interpreter: python: {error}");
    }
    if let Err(error) = server.contexts.announce_default(Language::javascript()) {
        eprintln!("soulbox-interpreter: javascript: {error}");
    }
    crate::memory::trim();
    tokio::task::spawn_local(http::serve(Rc::clone(&server), listener));
    let renewed = Rc::clone(&server);
    tokio::task::spawn_local(async move { renewed.contexts.keep_preloaded().await });
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    for context in server.contexts.list() {
        context.remove();
    }
    Ok(())
}

/// What a server before this one left is of no use.
fn empty_folder(path: &std::path::Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}
