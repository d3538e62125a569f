//! What `--help` says is kept in `tests/help`, so that a change of it is seen and meant.

use std::{collections::BTreeMap, env, fs, path::PathBuf};

use clap::{Command, CommandFactory};

use crate::args::Cli;

/// Set to anything, it writes the files instead of comparing them.
const ACCEPT: &str = "SOULBOX_ACCEPT_HELP";
/// As wide as help ever is, whatever terminal the tests run in.
const WIDTH: usize = 100;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/help")
}

/// Help shows what variables are set to: that of the one who runs the tests belongs in no file.
fn without_values(command: Command) -> Command {
    command
        .mut_args(|argument| argument.hide_env_values(true))
        .mut_subcommands(without_values)
}

/// File name and text, of a command and of all below it that is visible to users.
fn render(command: &mut Command, parents: &str, into: &mut BTreeMap<String, String>) {
    let name = format!("{parents}{}", command.get_name());
    let text = command.render_long_help().to_string();
    // Whoever edits these files should not have to fight an editor about ends of lines.
    let lines: Vec<_> = text.lines().map(str::trim_end).collect();
    into.insert(format!("{name}.txt"), lines.join("\n") + "\n");
    for below in command.get_subcommands_mut() {
        if !below.is_hide_set() && below.get_name() != "help" {
            render(below, &format!("{name}-"), into);
        }
    }
}

fn as_it_is() -> BTreeMap<String, String> {
    let mut command = without_values(Cli::command()).term_width(WIDTH);
    command.build();
    let mut texts = BTreeMap::new();
    render(&mut command, "", &mut texts);
    texts
}

fn as_it_was() -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .map(|name| {
            let text = fs::read_to_string(folder().join(&name)).unwrap();
            (name, text)
        })
        .collect()
}

fn accept(texts: &BTreeMap<String, String>) {
    for gone in as_it_was().keys().filter(|name| !texts.contains_key(*name)) {
        fs::remove_file(folder().join(gone)).unwrap();
    }
    for (name, text) in texts {
        fs::write(folder().join(name), text).unwrap();
    }
}

/// Where the two first differ, for people.
fn difference(was: Option<&String>, is: Option<&String>) -> String {
    let (Some(was), Some(is)) = (was, is) else {
        let what = if was.is_none() { "file" } else { "command" };
        return format!("there is no such {what}");
    };
    let (was, is): (Vec<_>, Vec<_>) = (was.lines().collect(), is.lines().collect());
    let Some(line) = (0..was.len().max(is.len())).find(|&line| was.get(line) != is.get(line))
    else {
        return "the ends of lines".to_owned();
    };
    let show = |lines: &[&str]| lines.get(line).map_or("(end)", |text| *text).to_owned();
    format!(
        "line {}:\n  was: {}\n  is:  {}",
        line + 1,
        show(&was),
        show(&is)
    )
}

#[test]
fn the_help_of_every_command_is_as_it_was_accepted() {
    let is = as_it_is();
    if env::var_os(ACCEPT).is_some() {
        accept(&is);
        return;
    }
    let was = as_it_was();
    let names = was
        .keys()
        .chain(is.keys().filter(|name| !was.contains_key(*name)));
    let changed: Vec<_> = names
        .filter(|name| was.get(*name) != is.get(*name))
        .map(|name| format!("{name}: {}", difference(was.get(name), is.get(name))))
        .collect();
    assert!(
        changed.is_empty(),
        "{}\n\nIf that is meant: {ACCEPT}=1 cargo test -p soulbox the_help_of, and commit tests/help",
        changed.join("\n")
    );
}

#[test]
fn the_files_cover_every_command() {
    let names: Vec<_> = as_it_is().into_keys().collect();
    for expected in [
        "soulbox.txt",
        "soulbox-serve.txt",
        "soulbox-template-build.txt",
    ] {
        assert!(names.iter().any(|name| name == expected), "{names:?}");
    }
}
