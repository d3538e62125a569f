//! All contexts, in the order of their making, and the default one of each language.

use std::{cell::RefCell, collections::HashMap, path::PathBuf, rc::Rc};

use tokio::sync::Mutex;

use crate::{
    context::{Context, KernelState},
    kernel::{self, Launcher},
    language::Language,
};

/// Each is a process of many megabytes; far more than a sandbox can hold.
const MAX_CONTEXTS: usize = 256;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("Context {0} not found")]
    NotFound(String),
    #[error("Failed to create context: {0}")]
    Create(#[from] kernel::Error),
    #[error("Failed to create context: there are {MAX_CONTEXTS} already, remove some")]
    TooMany,
    #[error("Failed to set working directory")]
    WorkingDirectory,
}

pub(crate) struct Contexts {
    launcher: Rc<Launcher>,
    home: PathBuf,
    list: RefCell<Vec<Rc<Context>>>,
    defaults: RefCell<HashMap<Language, String>>,
    /// Two first calls in a language share one kernel.
    making_default: Mutex<()>,
}

impl Contexts {
    pub(crate) fn new(launcher: Rc<Launcher>, home: PathBuf) -> Self {
        Self {
            launcher,
            home,
            list: RefCell::default(),
            defaults: RefCell::default(),
            making_default: Mutex::default(),
        }
    }

    pub(crate) fn list(&self) -> Vec<Rc<Context>> {
        self.list.borrow().clone()
    }

    pub(crate) fn find(&self, id: &str) -> Result<Rc<Context>, Error> {
        self.list
            .borrow()
            .iter()
            .find(|context| context.id == id)
            .cloned()
            .ok_or_else(|| Error::NotFound(id.to_owned()))
    }

    pub(crate) async fn create(
        &self,
        language: Language,
        cwd: Option<String>,
    ) -> Result<Rc<Context>, Error> {
        let context = self.prepare(language, cwd)?;
        context.start(&mut KernelState::default()).await?;
        self.list.borrow_mut().push(Rc::clone(&context));
        Ok(context)
    }

    /// The language's own context: the one it has, or a new one.
    pub(crate) async fn default(&self, language: &Language) -> Result<Rc<Context>, Error> {
        if let Some(context) = self.known_default(language) {
            return Ok(context);
        }
        let _one_at_a_time = self.making_default.lock().await;
        if let Some(context) = self.known_default(language) {
            return Ok(context);
        }
        let context = self.create(language.clone(), None).await?;
        self.set_default(&context);
        Ok(context)
    }

    /// A default context that is listed but takes no memory before its first use.
    pub(crate) fn announce_default(&self, language: Language) -> Result<(), Error> {
        self.launcher.knows(&language)?;
        let context = self.prepare(language, None)?;
        self.list.borrow_mut().push(Rc::clone(&context));
        self.set_default(&context);
        Ok(())
    }

    /// For ever: what was made before the libraries were loaded, and not used since, gets them too.
    pub(crate) async fn keep_preloaded(&self) {
        loop {
            self.launcher.preloaded().await;
            for context in self.list().iter().filter(|each| each.language.is_python()) {
                if let Err(error) = context.renew_unused().await {
                    eprintln!("soulbox-interpreter: a kernel is not renewed: {error}");
                }
            }
            crate::memory::trim();
        }
    }

    pub(crate) fn remove(&self, id: &str) -> Result<(), Error> {
        let context = self.find(id)?;
        self.list.borrow_mut().retain(|known| known.id != id);
        context.remove();
        Ok(())
    }

    fn prepare(&self, language: Language, cwd: Option<String>) -> Result<Rc<Context>, Error> {
        if self.list.borrow().len() >= MAX_CONTEXTS {
            return Err(Error::TooMany);
        }
        let cwd = cwd.unwrap_or_else(|| self.home.to_string_lossy().into_owned());
        if !language.is_python()
            && self.home.as_os_str() != cwd.as_str()
            && !PathBuf::from(&cwd).is_dir()
        {
            return Err(Error::WorkingDirectory);
        }
        Ok(Rc::new(Context::new(
            language,
            cwd,
            self.home.clone(),
            Rc::clone(&self.launcher),
        )))
    }

    fn known_default(&self, language: &Language) -> Option<Rc<Context>> {
        let id = self.defaults.borrow().get(language).cloned()?;
        self.find(&id).ok()
    }

    fn set_default(&self, context: &Context) {
        self.defaults
            .borrow_mut()
            .insert(context.language.clone(), context.id.clone());
    }
}
