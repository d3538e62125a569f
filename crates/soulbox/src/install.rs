//! `soulbox install` and `uninstall`: this program as a service of this machine. Everything here blocks.
//!
//! # Layout
//! - `layout`: where what is
//! - `unit`: the text for systemd, the same as that of the packages
//! - `program`: replaced in one step, the former one kept
//! - `documents`: man pages and completions
//! - `upgrade`: another program in the place of the one that serves, and back
//! - `unfinished`: how far an upgrade has come, for whoever was killed in it
//! - `removal`: the way back
//! - `service`, `files`: systemd, and files that are told when they are written

use std::path::{Path, PathBuf};

use anyhow::Result;
use soulbox_client::config::DEFAULT_DATA_DIR;

use self::{
    files::Files,
    layout::{Layout, UNIT},
    program::Placed,
    unfinished::Unfinished,
    upgrade::Upgrade,
};
use crate::{
    args::{InstallArgs, PlaceArgs},
    report::advice,
};

mod documents;
mod files;
mod layout;
mod program;
mod removal;
mod service;
mod unfinished;
mod unit;
mod upgrade;

pub(crate) use documents::{completions, man_pages};
pub(crate) use removal::uninstall;

/// What is installed or removed.
#[derive(Debug)]
struct Target {
    layout: Layout,
    data_dir: PathBuf,
}

impl Target {
    fn find(place: &PlaceArgs, data_dir: Option<&Path>) -> Result<Self> {
        let layout = Layout::new(place)?;
        if layout.is_this_system() && !place.dry_run && !rustix::process::geteuid().is_root() {
            let hint = "use sudo; --dry-run shows what would be done";
            return Err(advice("only root can do this", hint));
        }
        if let Some(unit) = layout.unit_of_package() {
            return Err(advice(
                format!("soulbox was installed by a package: {}", unit.display()),
                "upgrade and remove it with the package manager: `apt-get install ./soulbox_….deb`, \
                 `apt-get purge soulbox`",
            ));
        }
        let data_dir = match data_dir {
            Some(named) => std::path::absolute(named)?,
            None => std::fs::read_to_string(layout.unit())
                .map_or_else(|_| DEFAULT_DATA_DIR.into(), |unit| unit::data_dir_of(&unit)),
        };
        Ok(Self { layout, data_dir })
    }
}

pub(crate) async fn install(args: &InstallArgs) -> Result<()> {
    let Target { layout, data_dir } = Target::find(&args.place, args.data_dir.as_deref())?;
    let files = Files {
        dry_run: args.place.dry_run,
    };
    let _lock = if files.dry_run {
        None
    } else {
        Some(files::lock(&layout)?)
    };
    let unfinished = Unfinished::of(&layout);
    let upgrade = Upgrade {
        layout: layout.clone(),
        data_dir: data_dir.clone(),
        unfinished,
        files,
    };
    if args.rollback {
        return upgrade.roll_back(args.with_database).await;
    }
    let unit = unit::text(&layout.program_there(), &data_dir)?;
    put_program(&layout, &upgrade.unfinished, files)?;
    for (path, content) in documents::all()? {
        files.write(&layout.share().join(path), &content)?;
    }
    let unit_changed = files.write(&layout.unit(), unit.as_bytes())?;
    if unit_changed {
        files.tell(&format!("write the unit {}", layout.unit().display()))?;
    }
    files.link(
        &layout.wanted(),
        &Path::new("/etc/systemd/system").join(UNIT),
    )?;
    if args.no_start || !layout.has_systemd() {
        return finish_without_start(args, &layout, &data_dir, &upgrade);
    }
    if files.dry_run {
        return files.tell("start the service, or restart it if it runs another program");
    }
    upgrade.serve(unit_changed).await?;
    if layout.is_this_system() {
        files.tell(&format!(
            "load the key with: . {}",
            data_dir.join("env").display()
        ))?;
    }
    Ok(())
}

fn put_program(layout: &Layout, unfinished: &Unfinished, files: Files) -> Result<()> {
    // Also when another one has its name by now.
    let source = Path::new("/proc/self/exe");
    let program = layout.program().display().to_string();
    if files.dry_run {
        let placed = program::compare(layout, source)?;
        return files.tell(&told(placed, &program));
    }
    let placed = program::place(layout, source, unfinished)?;
    files.tell(&told(placed, &program))
}

fn told(placed: Placed, program: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    match placed {
        Placed::First => format!("install {program}, version {version}"),
        Placed::Same => format!("leave {program} as it is: it is this program"),
        Placed::Replaced => format!("replace {program} with version {version}"),
    }
}

/// Nobody can be asked to start it, or must not be.
fn finish_without_start(
    args: &InstallArgs,
    layout: &Layout,
    data_dir: &Path,
    upgrade: &Upgrade,
) -> Result<()> {
    let files = upgrade.files;
    if !files.dry_run {
        upgrade.unfinished.remove()?;
    }
    if !layout.is_this_system() {
        return files.tell("leave it to that system to start the service when it boots");
    }
    if args.no_start {
        return files.tell("leave the service as it is: `systemctl restart soulbox` runs this one");
    }
    let mut command = format!("{} serve", layout.program_there().display());
    if data_dir != Path::new(DEFAULT_DATA_DIR) {
        command = format!("{command} --data-dir {}", data_dir.display());
    }
    files.tell(&format!(
        "leave the start to you, since systemd does not run here: {command}"
    ))
}
