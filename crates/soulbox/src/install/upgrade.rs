//! From one program to another, and back when it does not serve.

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use soulbox_server::OfflineFolder;

use super::{
    files::Files,
    layout::Layout,
    program,
    service::Service,
    unfinished::{Stage, Unfinished},
};
use crate::report::{self, advice};

/// In the data folder.
const BEFORE_UPGRADE: &str = "before-upgrade";
const BEFORE_ROLLBACK: &str = "before-rollback";

#[derive(Debug)]
pub(super) struct Upgrade {
    pub(super) layout: Layout,
    pub(super) data_dir: PathBuf,
    pub(super) unfinished: Unfinished,
    pub(super) files: Files,
}

impl Upgrade {
    /// Has the service run the installed program. When a new one does not serve, the former one
    /// comes back.
    pub(super) async fn serve(&self, unit_changed: bool) -> Result<()> {
        Service.reload_units().await?;
        let stage = self.unfinished.read()?;
        let active = Service.is_active().await?;
        if active && stage.is_none() && !unit_changed && self.is_served().await? {
            return self.files.tell("the service runs this program already");
        }
        Service.stop().await?;
        if stage == Some(Stage::Replacing) {
            self.keep_database(BEFORE_UPGRADE)?;
            self.unfinished.write(Stage::DatabaseKept)?;
        }
        match Service.start().await {
            Ok(()) => {
                self.unfinished.remove()?;
                self.files.tell("the service is ready")
            }
            Err(error) if stage.is_some() => Err(self.undo(error).await),
            Err(error) => Err(advice(
                format!("it is installed, but the server did not start: {error:#}"),
                "`systemctl status soulbox` shows it; `sudo soulbox doctor` tries what it needs; \
                 then `sudo systemctl start soulbox`",
            )),
        }
    }

    /// The former program, and the database as it had it. Returns what to tell.
    async fn undo(&self, why: anyhow::Error) -> anyhow::Error {
        let message = format!("the new server did not start: {why:#}");
        match self.back().await {
            Ok(()) => advice(
                format!("{message}. The former program serves again, with its sandboxes"),
                "the new one is kept beside it; `journalctl -u soulbox` has its log",
            ),
            Err(error) => error.context(format!(
                "{message}. The former program could not be brought back"
            )),
        }
    }

    async fn back(&self) -> Result<()> {
        Service.stop().await?;
        self.exchange_once()?;
        Service.start().await?;
        self.unfinished.remove()
    }

    /// Also after a kill in the middle of it.
    fn exchange_once(&self) -> Result<()> {
        let stage = self.unfinished.read()?;
        let inode = if let Some(Stage::RollingBack { inode }) = stage {
            inode
        } else {
            if stage == Some(Stage::DatabaseKept) {
                self.restore_database(BEFORE_UPGRADE)?;
            }
            let inode = program::inode(&self.layout.previous())?;
            self.unfinished.write(Stage::RollingBack { inode })?;
            inode
        };
        if program::inode(&self.layout.program())? != inode {
            program::exchange(&self.layout)?;
        }
        Ok(())
    }

    /// On request: the program before the last upgrade.
    pub(super) async fn roll_back(&self, with_database: bool) -> Result<()> {
        let (program, previous) = (self.layout.program(), self.layout.previous());
        if !previous.exists() {
            return Err(advice(
                format!("{} is not there: nothing was upgraded", previous.display()),
                "install an older program: OLDER/soulbox install",
            ));
        }
        self.files.tell(&format!(
            "exchange {} and {}",
            program.display(),
            previous.display()
        ))?;
        if self.files.dry_run {
            return Ok(());
        }
        if !self.layout.has_systemd() {
            if with_database {
                self.restore_database(BEFORE_UPGRADE)?;
            }
            self.exchange_once()?;
            return self.unfinished.remove();
        }
        Service.stop().await?;
        if with_database {
            self.keep_database(BEFORE_ROLLBACK)?;
            self.restore_database(BEFORE_UPGRADE)?;
        }
        self.exchange_once()?;
        let Err(error) = Service.start().await else {
            self.unfinished.remove()?;
            return self.files.tell("the service is ready");
        };
        // The other way again.
        self.unfinished.remove()?;
        if with_database {
            self.restore_database(BEFORE_ROLLBACK)?;
        }
        let message = format!("the previous program did not start: {error:#}");
        self.back().await.with_context(|| message.clone())?;
        Err(advice(
            format!("{message}. The program that served before serves again"),
            "when it refuses the database of the newer program: --with-database",
        ))
    }

    async fn is_served(&self) -> Result<bool> {
        let pid = Service.pid().await?;
        Ok(pid.is_some_and(|pid| program::is_run_by(&self.layout.program(), pid)))
    }

    fn keep_database(&self, name: &str) -> Result<()> {
        if let Some(folder) = OfflineFolder::open(&self.data_dir)? {
            let copy = self.data_dir.join(name);
            folder
                .keep_database(&copy)
                .with_context(|| format!("could not copy the database to {}", copy.display()))?;
        }
        Ok(())
    }

    fn restore_database(&self, name: &str) -> Result<()> {
        let none = || anyhow!("{} is not there", self.data_dir.display());
        let folder = OfflineFolder::open(&self.data_dir)?.ok_or_else(none)?;
        let restored = folder.restore_database(&self.data_dir.join(name));
        if restored.is_ok() {
            report::note(&format!("the database of {name} is back"));
        }
        restored.context("could not put the database back")
    }
}
