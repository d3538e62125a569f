//! The table of crates in `docs/architecture.md` says what the manifests say.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

const PAGE: &str = "docs/architecture.md";
const HEADER: &str = "| crate | what it is | depends on | its tests also on |";

type Names = BTreeSet<String>;

/// What a crate uses of the workspace, by the names of their folders.
#[derive(Debug, Default, PartialEq, Eq)]
struct Uses {
    always: Names,
    /// For its tests alone.
    in_tests: Names,
}

fn project() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap().to_owned()
}

/// A crate is known by its folder below `crates/`.
fn folder(manifest: &Value) -> String {
    let path = Path::new(manifest.as_str().unwrap());
    let folder = path.parent().unwrap();
    assert_eq!(
        folder.parent(),
        Some(&*project().join("crates")),
        "{PAGE} speaks of crates/ only"
    );
    folder.file_name().unwrap().to_str().unwrap().to_owned()
}

fn uses(package: &Value, folders: &BTreeMap<&str, String>) -> Uses {
    let mut uses = Uses::default();
    for dependency in package["dependencies"].as_array().unwrap() {
        let Some(folder) = folders.get(dependency["name"].as_str().unwrap()) else {
            continue;
        };
        match dependency["kind"].as_str() {
            Some("dev") => uses.in_tests.insert(folder.clone()),
            _ => uses.always.insert(folder.clone()),
        };
    }
    uses.in_tests = &uses.in_tests - &uses.always;
    uses
}

/// As Cargo reads the manifests.
fn built() -> BTreeMap<String, Uses> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(project())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata: {said}");
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let folders = packages
        .iter()
        .map(|package| {
            (
                package["name"].as_str().unwrap(),
                folder(&package["manifest_path"]),
            )
        })
        .collect();
    packages
        .iter()
        .map(|package| (folder(&package["manifest_path"]), uses(package, &folders)))
        .collect()
}

/// `` `a`, `b` `` or `–`.
fn names(cell: &str) -> Names {
    if cell == "–" {
        return Names::new();
    }
    cell.split(", ").map(name).collect()
}

fn name(quoted: &str) -> String {
    let bare = quoted
        .strip_prefix('`')
        .and_then(|rest| rest.strip_suffix('`'));
    bare.unwrap_or_else(|| panic!("{PAGE}: {quoted:?} should be in backquotes"))
        .to_owned()
}

/// As the page tells them.
fn documented() -> BTreeMap<String, Uses> {
    let page = fs::read_to_string(project().join(PAGE)).unwrap();
    let mut lines = page.lines().skip_while(|line| *line != HEADER);
    assert!(
        lines.next().is_some(),
        "{PAGE} has no table that begins with {HEADER}"
    );
    let mut crates = BTreeMap::new();
    for row in lines.skip(1).take_while(|line| line.starts_with('|')) {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [of, what, always, in_tests] = cells[..] else {
            panic!("{PAGE}: four cells are expected: {row}")
        };
        assert!(!what.is_empty(), "{PAGE} says nothing of {of}");
        let uses = Uses {
            always: names(always),
            in_tests: names(in_tests),
        };
        assert_eq!(
            crates.insert(name(of), uses),
            None,
            "{PAGE}: {of} is there twice"
        );
    }
    crates
}

#[test]
fn the_table_has_every_crate_and_no_other() {
    let (documented, built) = (documented(), built());
    let missing: Vec<_> = built
        .keys()
        .filter(|name| !documented.contains_key(*name))
        .collect();
    let unknown: Vec<_> = documented
        .keys()
        .filter(|name| !built.contains_key(*name))
        .collect();
    assert!(
        missing.is_empty(),
        "not in the table of {PAGE}: {missing:?}"
    );
    assert!(
        unknown.is_empty(),
        "in the table of {PAGE}, not in crates/: {unknown:?}"
    );
}

#[test]
fn the_table_has_the_dependencies_of_the_manifests() {
    let documented = documented();
    for (name, built) in built() {
        if let Some(documented) = documented.get(&name) {
            assert_eq!(
                *documented, built,
                "`{name}`: left as {PAGE} has it, right as its Cargo.toml"
            );
        }
    }
}
