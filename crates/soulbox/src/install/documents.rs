//! Man pages and completions, made from what the command line understands.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_complete::Shell;

use super::layout::Layout;
use crate::args::Cli;

const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/soulbox"),
    (Shell::Zsh, "zsh/site-functions/_soulbox"),
    (Shell::Fish, "fish/vendor_completions.d/soulbox.fish"),
];
const MAN: &str = "man/man1";

/// Path below `share`, and content.
pub(super) fn all() -> Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut files = Vec::new();
    for (name, page) in man_pages()? {
        files.push((Path::new(MAN).join(name), page));
    }
    for (shell, path) in COMPLETIONS {
        files.push((path.into(), completions(shell)));
    }
    Ok(files)
}

pub(crate) fn completions(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "soulbox", &mut script);
    script
}

/// `soulbox.1`, and one for every command below it that is shown to users.
pub(crate) fn man_pages() -> Result<Vec<(String, Vec<u8>)>> {
    let mut command = without_help(Cli::command());
    command.build();
    let mut pages = Vec::new();
    render(&command, "", &mut pages)?;
    Ok(pages)
}

/// `soulbox help` has no page: each page is that.
fn without_help(command: Command) -> Command {
    command
        .disable_help_subcommand(true)
        .mut_subcommands(without_help)
}

fn render(command: &Command, above: &str, pages: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
    let name = format!("{above}{}", command.get_name());
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone())
        .title(name.to_uppercase())
        .source(concat!("SoulBox ", env!("CARGO_PKG_VERSION")))
        .manual("SoulBox")
        .render(&mut page)?;
    pages.push((format!("{name}.1"), page));
    for below in command.get_subcommands() {
        if !below.is_hide_set() {
            render(below, &format!("{name}-"), pages)?;
        }
    }
    Ok(())
}

/// What an earlier version may have installed too.
pub(super) fn installed(layout: &Layout) -> Result<Vec<PathBuf>> {
    let share = layout.share();
    let mut found: Vec<PathBuf> = COMPLETIONS
        .iter()
        .map(|(_, path)| share.join(path))
        .filter(|path| path.exists())
        .collect();
    let pages = share.join(MAN);
    if pages.is_dir() {
        for entry in pages.read_dir().context("could not list the man pages")? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name == "soulbox.1" || (name.starts_with("soulbox-") && name.ends_with(".1")) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_that_names_its_options() {
        let pages = man_pages().unwrap();
        let page = |name: &str| {
            let found = pages.iter().find(|(each, _)| each == name);
            String::from_utf8(found.expect(name).1.clone()).unwrap()
        };
        assert!(page("soulbox.1").contains(".TH SOULBOX 1"));
        assert!(page("soulbox-serve.1").contains("SOULBOX_DATA_DIR"));
        assert!(page("soulbox-template-build.1").contains("soulbox\\-template\\-build"));
        assert!(pages.iter().all(|(name, _)| !name.contains("bench-server")));
        assert!(!page("soulbox.1").contains("soulbox\\-help"));
    }
}
