//! Starts kernels: finds the specification, makes the connection file, and takes the fastest way
//! that works.

use std::{
    cell::RefCell,
    collections::HashMap,
    fs, io,
    os::unix::fs::DirBuilderExt,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    rc::Rc,
};

use tokio::sync::Notify;

use super::{
    Kernel, Process, bash, jupyter,
    spec::{self, Folders, Spec},
    zygote::Zygote,
};
use crate::{jupyter::Connection, language::Language};

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Spec(#[from] spec::Error),
    #[error("the folder for the kernel's sockets cannot be made: {0}")]
    Folder(io::Error),
    #[error("the program {0} cannot be started: {1}")]
    Spawn(String, io::Error),
    #[error("{0}")]
    Connect(#[from] jupyter::Error),
}

pub(crate) struct Launcher {
    folders: Folders,
    state: PathBuf,
    use_zygotes: bool,
    zygotes: RefCell<HashMap<String, Rc<Zygote>>>,
    preloaded: Rc<Notify>,
}

/// A kernel's own folder, gone with it.
pub(crate) struct Folder(PathBuf);

impl Launcher {
    pub(crate) fn new(folders: Folders, state: PathBuf, use_zygotes: bool) -> Self {
        Self {
            folders,
            state,
            use_zygotes,
            zygotes: RefCell::default(),
            preloaded: Rc::default(),
        }
    }

    /// Waits until kernels that are started from now on have more loaded than those before.
    pub(crate) async fn preloaded(&self) {
        self.preloaded.notified().await;
    }

    /// Whether there is a kernel for the language, without starting it.
    pub(crate) fn knows(&self, language: &Language) -> Result<(), Error> {
        if !language.is_bash() {
            self.folders.find(&language.kernel_names())?;
        }
        Ok(())
    }

    pub(crate) async fn start(&self, language: &Language, cwd: &Path) -> Result<Kernel, Error> {
        if language.is_bash() {
            let folder = Folder::create(&self.state).map_err(Error::Folder)?;
            return bash::Kernel::start(cwd, folder)
                .await
                .map(Kernel::Bash)
                .map_err(|e| Error::Spawn("bash".to_owned(), e));
        }
        let spec = self.folders.find(&language.kernel_names())?;
        if let Some(kernel) = self.fork(&spec, cwd).await {
            return Ok(Kernel::Jupyter(kernel));
        }
        match self.spawn(&spec, language, cwd).await {
            // Loopback ports may have been taken in the meantime.
            Err(Error::Connect(jupyter::Error::Ended(_))) if !spec.unix_sockets => {
                self.spawn(&spec, language, cwd).await
            }
            result => result,
        }
        .map(Kernel::Jupyter)
    }

    /// From the zygote, if there is one and it is well. Everything else has the long way.
    async fn fork(&self, spec: &Spec, cwd: &Path) -> Option<jupyter::Kernel> {
        let argv = spec.zygote.as_ref().filter(|_| self.use_zygotes)?;
        let zygote = match self.zygote(spec, argv).await {
            Ok(zygote) => zygote,
            Err(error) => {
                eprintln!("soulbox-interpreter: no zygote for {}: {error}", spec.name);
                return None;
            }
        };
        let attempt = async {
            let folder = Folder::create(&self.state).map_err(Error::Folder)?;
            let connection =
                Connection::over_unix_sockets(folder.path(), &spec.name).map_err(Error::Folder)?;
            let process = Rc::clone(&zygote)
                .fork(&connection.file, cwd)
                .await
                .map_err(|e| Error::Spawn(spec.name.clone(), e))?;
            jupyter::Kernel::connect(process, &connection, spec.interrupt, folder)
                .await
                .map_err(Error::from)
        };
        match attempt.await {
            Ok(kernel) => Some(kernel),
            Err(error) => {
                eprintln!("soulbox-interpreter: the zygote's kernel failed: {error}");
                self.zygotes.borrow_mut().remove(&spec.name);
                None
            }
        }
    }

    async fn zygote(&self, spec: &Spec, argv: &[String]) -> io::Result<Rc<Zygote>> {
        let known = self.zygotes.borrow().get(&spec.name).cloned();
        if let Some(zygote) = known.filter(|zygote| zygote.is_alive()) {
            return Ok(zygote);
        }
        let zygote = Rc::new(Zygote::start(argv, &spec.env, Rc::clone(&self.preloaded)).await?);
        self.zygotes
            .borrow_mut()
            .insert(spec.name.clone(), Rc::clone(&zygote));
        Ok(zygote)
    }

    async fn spawn(
        &self,
        spec: &Spec,
        language: &Language,
        cwd: &Path,
    ) -> Result<jupyter::Kernel, Error> {
        let folder = Folder::create(&self.state).map_err(Error::Folder)?;
        let connection = if spec.unix_sockets {
            Connection::over_unix_sockets(folder.path(), &spec.name)
        } else {
            Connection::over_loopback(folder.path(), &spec.name)
        }
        .map_err(Error::Folder)?;
        let command = spec.command(&connection.file);
        let (program, arguments) = command
            .split_first()
            .ok_or_else(|| spec::Error::Empty(PathBuf::from(&spec.name)))?;
        let failed = |e| Error::Spawn(program.clone(), e);
        let child = Command::new(program)
            .args(arguments)
            .envs(&spec.env)
            .env("SOULBOX_KERNEL_LANGUAGE", language.name())
            .current_dir(cwd)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let process = Process::adopt(&child).map_err(failed)?;
        Ok(jupyter::Kernel::connect(process, &connection, spec.interrupt, folder).await?)
    }
}

impl Folder {
    fn create(state: &Path) -> io::Result<Self> {
        // Short: a socket's whole path has little more than a hundred bytes.
        let name = hex::encode(&uuid::Uuid::new_v4().as_bytes()[..6]);
        let path = state.join(name);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}
