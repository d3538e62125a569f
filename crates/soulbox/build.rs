//! Tells the program which commit it is built from, for the reports of `soulbox bench`. Here and in
//! no crate below: a commit then costs this crate's build and nothing else.

#[path = "build/source_commit.rs"]
mod source_commit;

use std::{env, path::Path};

const VARIABLE: &str = "SOULBOX_COMMIT";

fn main() {
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    let commit = match env::var(VARIABLE) {
        Ok(commit) if !commit.trim().is_empty() => commit.trim().to_owned(),
        _ => in_git().unwrap_or_default(),
    };
    println!("cargo::rustc-env={VARIABLE}={commit}");
}

fn in_git() -> Option<String> {
    let package = env::var_os("CARGO_MANIFEST_DIR")?;
    let source = Path::new(&package).ancestors().nth(2)?;
    let found = source_commit::find(source)?;
    for file in found.changes_with {
        println!("cargo::rerun-if-changed={}", file.display());
    }
    Some(found.commit)
}
