//! A context: one kernel, its language, its folder, and the order of what runs in it.

use std::{
    cell::{Cell, RefCell},
    path::PathBuf,
    rc::Rc,
};

use tokio::sync::Mutex;

use crate::{
    envd::Variables,
    kernel::{Error, Kernel, Launcher},
    language::Language,
};

pub(crate) struct Context {
    pub(crate) id: String,
    pub(crate) language: Language,
    /// As the client asked for it.
    pub(crate) cwd: String,
    launcher: Rc<Launcher>,
    home: PathBuf,
    /// Who holds this runs; the others wait in order. Locked before `kernel` is changed.
    pub(crate) turn: Mutex<Turn>,
    kernel: RefCell<Option<Rc<Kernel>>>,
    removed: Cell<bool>,
}

/// What is known about the kernel that is up, by whoever's turn it is.
#[derive(Default)]
pub(crate) struct Turn {
    /// The sandbox's variables, once they were set in this kernel.
    pub(crate) globals: Option<Variables>,
    /// Whether a cell was sent to this kernel: it may have state.
    pub(crate) used: bool,
    /// Something that the next run must be told: its state is not what it expects.
    pub(crate) notice: Option<String>,
}

impl Context {
    pub(crate) fn new(
        language: Language,
        cwd: String,
        home: PathBuf,
        launcher: Rc<Launcher>,
    ) -> Self {
        Self {
            id: uuid::Uuid::new_v4().to_string(),
            language,
            cwd,
            launcher,
            home,
            turn: Mutex::default(),
            kernel: RefCell::default(),
            removed: Cell::new(false),
        }
    }

    /// The kernel, started if there is none that lives.
    pub(crate) async fn kernel(&self, turn: &mut Turn) -> Result<Rc<Kernel>, Error> {
        let known = self.kernel.borrow().clone();
        if let Some(kernel) = known {
            match kernel.process().exit() {
                None => return Ok(kernel),
                Some(exit) if !kernel.process().was_ended_by_us() => {
                    turn.notice = Some(exit.reason());
                }
                Some(_) => {}
            }
        }
        self.start(turn).await
    }

    /// A fresh kernel in place of whatever there was.
    pub(crate) async fn start(&self, turn: &mut Turn) -> Result<Rc<Kernel>, Error> {
        self.end_kernel();
        turn.globals = None;
        turn.used = false;
        let kernel = Rc::new(self.launcher.start(&self.language, &self.folder()).await?);
        // Removed while it was starting: nobody would ever end it.
        if !self.removed.get() {
            *self.kernel.borrow_mut() = Some(Rc::clone(&kernel));
        }
        Ok(kernel)
    }

    /// A kernel that has run nothing is exchanged for a new one, which is up before the old one goes.
    /// Whoever comes in between has the old one, as if nothing had happened.
    pub(crate) async fn renew_unused(&self) -> Result<(), Error> {
        let unused = || {
            let has_kernel = self.kernel.borrow().is_some() && !self.removed.get();
            has_kernel && self.turn.try_lock().is_ok_and(|turn| !turn.used)
        };
        if !unused() {
            return Ok(());
        }
        let kernel = Rc::new(self.launcher.start(&self.language, &self.folder()).await?);
        if unused() {
            self.end_kernel();
            *self.kernel.borrow_mut() = Some(kernel);
        }
        Ok(())
    }

    pub(crate) async fn restart(&self) -> Result<(), Error> {
        // Whatever runs in it ends with the kernel, and so the turn comes.
        self.end_kernel();
        let mut turn = self.turn.lock().await;
        turn.notice = None;
        self.start(&mut turn).await.map(|_| ())
    }

    pub(crate) fn remove(&self) {
        self.removed.set(true);
        self.end_kernel();
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.removed.get()
    }

    fn end_kernel(&self) {
        if let Some(kernel) = self.kernel.borrow_mut().take() {
            kernel.process().end();
        }
    }

    /// A folder that is not there is the home folder: as in the reference, where changing into it
    /// fails without further ado.
    fn folder(&self) -> PathBuf {
        [PathBuf::from(&self.cwd), self.home.clone()]
            .into_iter()
            .find(|folder| folder.is_dir())
            .unwrap_or_else(|| "/".into())
    }
}
