//! Where what is.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::{args::PlaceArgs, report::advice};

pub(super) const UNIT: &str = "soulbox.service";
const UNITS: &str = "/etc/systemd/system";
/// Where packages have theirs.
const UNITS_OF_PACKAGES: [&str; 2] = ["/usr/lib/systemd/system", "/lib/systemd/system"];
const SYSTEMD: &str = "/run/systemd/system";

#[derive(Debug, Clone)]
pub(super) struct Layout {
    root: PathBuf,
    prefix: PathBuf,
}

impl Layout {
    pub(super) fn new(place: &PlaceArgs) -> Result<Self> {
        if !place.prefix.is_absolute() {
            let message = format!("--prefix {} is not a whole path", place.prefix.display());
            return Err(advice(message, "it begins with /, such as /usr/local"));
        }
        Ok(Self {
            root: std::path::absolute(&place.root)?,
            prefix: place.prefix.clone(),
        })
    }

    /// A path of the installed system, as we reach it.
    pub(super) fn at(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// As the unit names it.
    pub(super) fn program_there(&self) -> PathBuf {
        self.prefix.join("bin/soulbox")
    }

    pub(super) fn program(&self) -> PathBuf {
        self.at(&self.program_there())
    }

    /// What only `soulbox install` uses.
    pub(super) fn own_folder(&self) -> PathBuf {
        self.at(&self.prefix.join("lib/soulbox"))
    }

    pub(super) fn previous(&self) -> PathBuf {
        self.own_folder().join("soulbox.previous")
    }

    pub(super) fn share(&self) -> PathBuf {
        self.at(&self.prefix.join("share"))
    }

    pub(super) fn unit(&self) -> PathBuf {
        self.at(Path::new(UNITS)).join(UNIT)
    }

    /// The link that starts it with the machine.
    pub(super) fn wanted(&self) -> PathBuf {
        self.at(Path::new(UNITS))
            .join("multi-user.target.wants")
            .join(UNIT)
    }

    pub(super) fn settings(&self) -> PathBuf {
        self.at(Path::new("/etc/default/soulbox"))
    }

    pub(super) fn unit_of_package(&self) -> Option<PathBuf> {
        UNITS_OF_PACKAGES
            .iter()
            .map(|folder| self.at(Path::new(folder)).join(UNIT))
            .find(|unit| unit.exists())
    }

    pub(super) fn is_this_system(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Whether systemd can be asked to start what we install.
    pub(super) fn has_systemd(&self) -> bool {
        self.is_this_system() && Path::new(SYSTEMD).is_dir()
    }
}
