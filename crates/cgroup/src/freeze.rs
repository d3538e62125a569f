//! Freezes and thaws every process of a group.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use crate::{Cgroup, Controller, Error, Result, Version, file};

/// Where the state is written and read, and in which words.
struct Freezer {
    version: Version,
    dir: PathBuf,
}

impl Freezer {
    fn request(&self, frozen: bool) -> Result<()> {
        match self.version {
            Version::V1 => file::write(
                &self.dir.join("freezer.state"),
                if frozen { "FROZEN" } else { "THAWED" },
            ),
            Version::V2 => file::write(
                &self.dir.join("cgroup.freeze"),
                if frozen { "1" } else { "0" },
            ),
        }
    }

    /// `None` while the kernel is still at it.
    fn state(&self) -> Result<Option<bool>> {
        match self.version {
            Version::V1 => {
                let text = file::read(&self.dir.join("freezer.state"))?;
                Ok(match text.trim() {
                    "FROZEN" => Some(true),
                    "THAWED" => Some(false),
                    _ => None,
                })
            }
            Version::V2 => Ok(Some(
                file::read_key(&self.dir.join("cgroup.events"), "frozen")? == 1,
            )),
        }
    }
}

impl Cgroup {
    /// Stops every process of the group where it is. When that takes longer than `timeout` (a
    /// process deep in the kernel), the group is thawed again and the call fails.
    pub fn freeze(&self, timeout: Duration) -> Result<()> {
        let result = self.switch(true, timeout);
        if matches!(result, Err(Error::Timeout { .. })) {
            // Best effort on the way out; the caller hears of the time-out.
            if let Err(error) = self.freezer()?.request(false) {
                tracing::warn!(group = self.name(), %error, "could not thaw a half-frozen group");
            }
        }
        result
    }

    pub fn thaw(&self, timeout: Duration) -> Result<()> {
        self.switch(false, timeout)
    }

    pub fn is_frozen(&self) -> Result<bool> {
        Ok(self.freezer()?.state()? == Some(true))
    }

    fn switch(&self, frozen: bool, timeout: Duration) -> Result<()> {
        let freezer = self.freezer()?;
        let start = Instant::now();
        let mut pause = Duration::from_micros(50);
        loop {
            // v1 looks at new children of a forking process only when asked again.
            freezer.request(frozen)?;
            if freezer.state()? == Some(frozen) {
                return Ok(());
            }
            if start.elapsed() >= timeout {
                return Err(self.timed_out(if frozen { "frozen" } else { "thawed" }, timeout));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(5));
        }
    }

    fn freezer(&self) -> Result<Freezer> {
        let hierarchy =
            self.hierarchy_of(Controller::Freezer)
                .ok_or_else(|| Error::InvalidName {
                    name: self.name().to_owned(),
                })?;
        Ok(Freezer {
            version: hierarchy.version,
            dir: self.directory(hierarchy),
        })
    }
}
