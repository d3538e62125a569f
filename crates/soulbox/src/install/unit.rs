//! The unit of systemd. Its text is that of the packages, `packaging/soulbox.service`, with other
//! paths.

use std::path::{Path, PathBuf};

use anyhow::Result;
use soulbox_client::config::DEFAULT_DATA_DIR;

use crate::report::advice;

const TEXT: &str = include_str!("../../../../packaging/soulbox.service");
const COMMAND: &str = "ExecStart=/usr/bin/soulbox serve\n";
const DATA_DIR: &str = " --data-dir ";

pub(super) fn text(program: &Path, data_dir: &Path) -> Result<String> {
    let mut command = format!("ExecStart={} serve", quoted(program)?);
    if data_dir != Path::new(DEFAULT_DATA_DIR) {
        command.push_str(DATA_DIR);
        command.push_str(&quoted(data_dir)?);
    }
    command.push('\n');
    Ok(TEXT.replace(COMMAND, &command))
}

/// The data folder that a unit of ours names.
pub(super) fn data_dir_of(unit: &str) -> PathBuf {
    let command = unit.lines().find(|line| line.starts_with("ExecStart="));
    command
        .and_then(|command| command.split_once(DATA_DIR))
        .map_or_else(
            || DEFAULT_DATA_DIR.into(),
            |(_, path)| unquoted(path).into(),
        )
}

/// What systemd reads as this one word: see systemd.service(5), "Command lines".
fn quoted(path: &Path) -> Result<String> {
    let readable = path.to_str().filter(|path| {
        path.starts_with('/') && !path.contains(|each: char| each.is_control() || each == '"')
    });
    let Some(path) = readable else {
        let message = format!("{} cannot be named in a unit of systemd", path.display());
        let hint = "choose a whole path in UTF-8, without quotation marks and control characters";
        return Err(advice(message, hint));
    };
    let escaped = path
        .replace('\\', "\\\\")
        .replace('%', "%%")
        .replace('$', "$$");
    let plain = |each: char| each.is_ascii_alphanumeric() || "/._-+@".contains(each);
    Ok(if escaped.chars().all(plain) {
        escaped
    } else {
        format!("\"{escaped}\"")
    })
}

fn unquoted(word: &str) -> String {
    word.trim()
        .trim_matches('"')
        .replace("$$", "$")
        .replace("%%", "%")
        .replace("\\\\", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(data_dir: &str) -> String {
        text(Path::new("/usr/local/bin/soulbox"), Path::new(data_dir)).unwrap()
    }

    #[test]
    fn it_is_the_text_of_the_packages_with_other_paths() {
        assert_eq!(TEXT.matches(COMMAND).count(), 1);
        let unit = of(DEFAULT_DATA_DIR);
        assert!(unit.contains("\nExecStart=/usr/local/bin/soulbox serve\n"));
        assert_eq!(
            unit.replace("/usr/local/bin/soulbox", "/usr/bin/soulbox"),
            TEXT
        );
    }

    #[test]
    fn a_data_folder_of_any_name_is_one_word_and_is_found_again() {
        for folder in [
            "/srv/soulbox",
            "/srv/my data/100%/$HOME\\x",
            "/srv/größe",
            DEFAULT_DATA_DIR,
        ] {
            assert_eq!(data_dir_of(&of(folder)), Path::new(folder), "{folder}");
        }
        assert!(of("/srv/my data").contains("serve --data-dir \"/srv/my data\"\n"));
    }

    #[test]
    fn what_would_be_another_line_or_word_is_refused() {
        for folder in ["relative", "/a\"b", "/a\nExecStart=/bin/sh"] {
            assert!(text(Path::new("/usr/bin/soulbox"), Path::new(folder)).is_err());
        }
    }
}
