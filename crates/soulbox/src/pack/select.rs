//! Which files of the context a COPY takes, and what they are called in its archive.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

use super::{ignore::Ignore, pattern::Pattern};
use crate::report::advice;

/// The build context.
#[derive(Debug)]
pub(crate) struct Context {
    /// Without symbolic links.
    root: PathBuf,
    ignore: Ignore,
}

/// What goes into an archive.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    /// By name in the archive, and so in a fixed order.
    pub files: BTreeMap<String, PathBuf>,
    /// What is to be copied of the archive: one file or one folder.
    pub source: String,
}

/// Something that a source names.
#[derive(Debug)]
struct Found {
    /// Below the context, empty for itself.
    name: String,
    path: PathBuf,
    is_folder: bool,
}

impl Context {
    pub(crate) fn open(folder: &Path, ignore: Ignore) -> Result<Self> {
        let root = folder
            .canonicalize()
            .with_context(|| format!("the build context {}", folder.display()))?;
        if !root.is_dir() {
            bail!("the build context {} is not a folder", folder.display());
        }
        Ok(Self { root, ignore })
    }

    /// `others`: how many files come from elsewhere than the context.
    pub(crate) fn select(
        &self,
        sources: &[String],
        others: usize,
        destination: &str,
    ) -> Result<Selection> {
        let mut found = Vec::new();
        for source in sources {
            found.extend(self.find(source)?);
        }
        let goes_into_folder = destination.ends_with('/') || destination.ends_with('.');
        if found.len() + others > 1 && !goes_into_folder && !(found.iter().all(|one| one.is_folder))
        {
            let hint = format!("write the destination as {destination}/");
            return Err(advice("several files need a folder to go to", hint));
        }
        let mut selection = Selection::default();
        match found.as_slice() {
            [only] if others == 0 => {
                selection.source = if only.name.is_empty() {
                    ".".to_owned()
                } else {
                    only.name.clone()
                };
                self.add(&mut selection, only, &only.name)?;
            }
            [] if others == 1 => {}
            _ => {
                selection.source = folder_name(sources);
                for one in &found {
                    // A folder gives what is in it, a file itself.
                    let name = match one.name.rsplit('/').next() {
                        Some(last) if !one.is_folder => format!("{}/{last}", selection.source),
                        _ => selection.source.clone(),
                    };
                    self.add(&mut selection, one, &name)?;
                }
            }
        }
        Ok(selection)
    }

    fn find(&self, source: &str) -> Result<Vec<Found>> {
        let pattern = Pattern::new(source);
        if pattern.is_plain() {
            return Ok(vec![self.plain(&pattern.fixed_prefix(), source)?]);
        }
        let mut found = Vec::new();
        let start = pattern.fixed_prefix();
        if self.root.join(&start).is_dir() {
            self.search(&start, &pattern, &mut found)?;
        }
        if found.is_empty() {
            return Err(self.missing(source));
        }
        Ok(found)
    }

    fn plain(&self, name: &str, source: &str) -> Result<Found> {
        if name.is_empty() {
            return Ok(Found {
                name: String::new(),
                path: self.root.clone(),
                is_folder: true,
            });
        }
        let path = self.root.join(name);
        if path.symlink_metadata().is_err() {
            return Err(self.missing(source));
        }
        // As Docker: a source that is itself a link means what it leads to, inside the context.
        let Ok(real) = path.canonicalize() else {
            bail!("{source} is a link that leads nowhere");
        };
        if !real.starts_with(&self.root) {
            let hint = "only what is in the build context can be copied";
            return Err(advice(
                format!("{source} leads out of the build context"),
                hint,
            ));
        }
        let is_folder = real.is_dir();
        let left_out = self.ignore.leaves_out(name);
        if left_out && !(is_folder && self.ignore.has_exceptions()) {
            return Err(self.missing(source));
        }
        Ok(Found {
            name: name.to_owned(),
            path: real,
            is_folder,
        })
    }

    /// What matches below a folder. What is in a folder that matches comes with it.
    fn search(&self, folder: &str, pattern: &Pattern, found: &mut Vec<Found>) -> Result<()> {
        for (name, path, is_folder) in children(folder, &self.root.join(folder))? {
            let left_out = self.ignore.leaves_out(&name);
            if left_out && !(is_folder && self.ignore.has_exceptions()) {
                continue;
            }
            if !left_out && pattern.matches(&name) {
                found.push(Found {
                    name,
                    path,
                    is_folder,
                });
            } else if is_folder {
                self.search(&name, pattern, found)?;
            }
        }
        Ok(())
    }

    /// Puts it under this name, with all that is in it.
    fn add(&self, selection: &mut Selection, found: &Found, name: &str) -> Result<()> {
        if !found.is_folder {
            selection.files.insert(name.to_owned(), found.path.clone());
            return Ok(());
        }
        if !name.is_empty() {
            selection
                .files
                .entry(name.to_owned())
                .or_insert_with(|| found.path.clone());
        }
        self.add_contents(selection, &found.name, &found.path, name)
    }

    fn add_contents(
        &self,
        selection: &mut Selection,
        folder: &str,
        path: &Path,
        archived: &str,
    ) -> Result<()> {
        for (name, path, is_folder) in children(folder, path)? {
            let last = name.rsplit('/').next().unwrap_or(&name);
            let archived = joined(archived, last);
            let left_out = self.ignore.leaves_out(&name);
            if !left_out {
                selection.files.insert(archived.clone(), path.clone());
            }
            if is_folder && (!left_out || self.ignore.has_exceptions()) {
                self.add_contents(selection, &name, &path, &archived)?;
            }
        }
        Ok(())
    }

    fn missing(&self, source: &str) -> anyhow::Error {
        let plain = Pattern::new(source);
        let is_there = plain.is_plain()
            && self
                .root
                .join(plain.fixed_prefix())
                .symlink_metadata()
                .is_ok();
        let root = self.root.display();
        if is_there {
            let hint = "take it back with a line that begins with ! there";
            advice(format!("{source} is left out by .dockerignore"), hint)
        } else {
            let hint = "sources are looked for in the build context, the last argument";
            advice(format!("there is no {source} in {root}"), hint)
        }
    }
}

/// Sorted; links are not followed.
fn children(folder: &str, path: &Path) -> Result<Vec<(String, PathBuf, bool)>> {
    let shown = || path.display().to_string();
    let mut children = Vec::new();
    for entry in fs::read_dir(path).with_context(shown)? {
        let entry = entry.with_context(shown)?;
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
            let hint = "rename it, or leave it out with .dockerignore";
            let message = format!("the name of {} is not UTF-8", entry.path().display());
            return Err(advice(message, hint));
        };
        let is_folder = entry.file_type().with_context(shown)?.is_dir();
        children.push((joined(folder, &name), entry.path(), is_folder));
    }
    children.sort();
    Ok(children)
}

fn joined(folder: &str, name: &str) -> String {
    if folder.is_empty() {
        name.to_owned()
    } else {
        format!("{folder}/{name}")
    }
}

/// A folder for what several sources name, named so that the build's log shows what it is.
fn folder_name(sources: &[String]) -> String {
    const LONGEST: usize = 60;
    let safe = |one: char| {
        if one.is_ascii_alphanumeric() || "-_. ".contains(one) {
            one
        } else {
            '_'
        }
    };
    let name: String = sources.join(" ").chars().map(safe).take(LONGEST).collect();
    match name.trim_matches([' ', '.']) {
        "" => "files".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests;
