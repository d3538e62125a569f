//! The alternatives to SoulBox, measured in the same run.
//!
//! Each function gives the [`Contender`], or a [`Failure`] that says why it is not available; it was tried
//! once before it is given. What starts from nothing is timed until the command's first output has
//! arrived in this process, as SoulBox is; how long it takes to go away again is not counted.
//!
//! # Layout
//! - `busybox`: one static program, as a root directory and as an image
//! - `program`: command lines, timed and bounded
//! - `bare_clone`, `bwrap`, `runsc`, `docker`: the contenders

mod bare_clone;
mod busybox;
mod bwrap;
mod docker;
mod program;
mod runsc;

use std::{
    fs,
    path::{Path, PathBuf},
};

pub use docker::{Burst, Docker};
pub(crate) use program::first_line_of;

use crate::{Contender, Failure};

/// What all of them print.
pub(crate) const WORD: &str = "hello";

/// Where the contenders put their files, and the program that serves [`crate::floor::COMMAND`].
#[derive(Debug, Clone)]
pub struct Workspace {
    program: PathBuf,
    folder: PathBuf,
}

impl Workspace {
    /// `program` is usually `std::env::current_exe()`; the folder is made and left to the caller.
    pub fn new(program: &Path, folder: &Path) -> Result<Self, Failure> {
        let failure = |error| Failure(format!("{}: {error}", folder.display()));
        fs::create_dir_all(folder).map_err(failure)?;
        Ok(Self {
            program: program.to_owned(),
            folder: folder.canonicalize().map_err(failure)?,
        })
    }

    fn folder(&self, name: &str) -> Result<PathBuf, Failure> {
        let path = self.folder.join(name);
        fs::create_dir_all(&path)
            .map_err(|error| Failure(format!("{}: {error}", path.display())))?;
        Ok(path)
    }
}

/// The floor: namespaces, an overlay, `pivot_root`, exec, and nothing else.
pub async fn bare_clone(workspace: &Workspace) -> Result<Box<dyn Contender>, Failure> {
    bare_clone::new(workspace).await
}

/// Bubblewrap with all namespaces over the host's `/usr`.
pub async fn bwrap() -> Result<Box<dyn Contender>, Failure> {
    bwrap::new().await
}

/// gVisor, by an OCI bundle.
pub async fn runsc(workspace: &Workspace) -> Result<Box<dyn Contender>, Failure> {
    runsc::new(workspace).await
}
