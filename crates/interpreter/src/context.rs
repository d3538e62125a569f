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
    /// The holder of this lock executes; the others wait in order. Locked before `kernel` is changed.
    pub(crate) state: Mutex<KernelState>,
    kernel: RefCell<Option<Rc<Kernel>>>,
    removed: Cell<bool>,
}

/// What is known about the running kernel; guarded by the execution lock.
#[derive(Default)]
pub(crate) struct KernelState {
    /// The sandbox's variables, once they were set in this kernel.
    pub(crate) globals: Option<Variables>,
    /// Whether a cell was sent to this kernel: it may have state.
    pub(crate) used: bool,
    /// A notice for the next run: the kernel's state is not what it expects.
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
            state: Mutex::default(),
            kernel: RefCell::default(),
            removed: Cell::new(false),
        }
    }

    /// The kernel, started if there is none that lives.
    pub(crate) async fn kernel(&self, state: &mut KernelState) -> Result<Rc<Kernel>, Error> {
        let known = self.kernel.borrow().clone();
        if let Some(kernel) = known {
            match kernel.process().exit() {
                None => return Ok(kernel),
                Some(exit) if !kernel.process().was_ended_by_us() => {
                    state.notice = Some(exit.reason());
                }
                Some(_) => {}
            }
        }
        self.start(state).await
    }

    /// A fresh kernel in place of whatever there was.
    pub(crate) async fn start(&self, state: &mut KernelState) -> Result<Rc<Kernel>, Error> {
        self.end_kernel();
        state.globals = None;
        state.used = false;
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
            has_kernel && self.state.try_lock().is_ok_and(|state| !state.used)
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
        // Whatever runs in it ends with the kernel, which releases the lock.
        self.end_kernel();
        let mut state = self.state.lock().await;
        state.notice = None;
        self.start(&mut state).await.map(|_| ())
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
