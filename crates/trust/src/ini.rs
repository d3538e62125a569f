//! The values of a key in the files of a service that is configured by drop-ins.

use std::path::Path;

use fs_err as fs;

/// Of the main file and of `*.conf` in the folders, not empty ones.
pub(crate) fn values(main: &Path, folders: &[&Path], key: &str) -> Vec<String> {
    let mut files = vec![main.to_owned()];
    for folder in folders {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut found: Vec<_> = entries
            .map(|entry| entry.path())
            .filter(|path| {
                path.extension()
                    .is_some_and(|extension| extension == "conf")
            })
            .collect();
        found.sort();
        files.extend(found);
    }
    let texts = files
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok());
    texts.flat_map(|text| of_text(&text, key)).collect()
}

fn of_text(text: &str, key: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim);
    lines
        .filter(|line| !line.starts_with(['#', ';']))
        .filter_map(|line| line.split_once('='))
        .filter(|(name, value)| name.trim() == key && !value.trim().is_empty())
        .map(|(_, value)| value.trim().to_owned())
        .collect()
}
