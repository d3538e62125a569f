//! Builds the guest programs as static binaries, so that `cargo build` on a fresh clone is enough.
//!
//! They need flags of their own (static, small), which cargo cannot give to single crates of one
//! build: hence a second cargo with its own target folder. `SOULBOX_GUEST_DIR` names a folder with
//! ready programs instead; `SOULBOX_GUEST_PROFILE=dev` builds them faster and larger.

#![expect(clippy::expect_used, reason = "a build that cannot go on stops here")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

const PROGRAMS: [&str; 4] = [
    "soulbox-envd",
    "soulbox-init",
    "soulbox-sudo",
    "soulbox-interpreter",
];
const SOURCES: [&str; 7] = [
    "envd",
    "envd-protocol",
    "init",
    "interpreter",
    "sudo",
    "sys",
    "types",
];
/// Parts of the interpreter's kernels that are for developing them.
const NOT_INSTALLED: [&str; 4] = ["tests", "node_modules", "__pycache__", ".pytest_cache"];

fn main() {
    println!("cargo::rerun-if-env-changed=SOULBOX_GUEST_DIR");
    println!("cargo::rerun-if-env-changed=SOULBOX_GUEST_PROFILE");
    list_kernel_files();
    let ready = env::var_os("SOULBOX_GUEST_DIR").map(PathBuf::from);
    let ours = ready.is_none();
    let directory = ready.unwrap_or_else(build);
    for program in PROGRAMS {
        let path = directory.join(program);
        assert!(
            path.is_file(),
            "the guest program {} was not built",
            path.display()
        );
        let variable = program.to_uppercase().replace('-', "_");
        println!("cargo::rustc-env={variable}={}", path.display());
        // What this script makes is younger than its own start: cargo would run it again.
        if !ours {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
}

/// Writes a list of the files that the interpreter's kernels consist of.
fn list_kernel_files() {
    let folder = Path::new(&required("CARGO_MANIFEST_DIR")).join("../interpreter/kernel");
    let folder = folder.canonicalize().expect("the kernels' folder is there");
    let mut paths = Vec::new();
    collect(&folder, &mut paths);
    paths.sort_unstable();
    let mut list = String::from("&[\n");
    for path in paths {
        let name = path.strip_prefix(&folder).expect("it is below");
        let (name, path) = (name.to_str(), path.to_str());
        let (name, path) = name.zip(path).expect("names are text");
        let entry = format!("    ({name:?}, include_bytes!({path:?})),\n");
        list.push_str(&entry);
    }
    list.push_str("]\n");
    let out = Path::new(&required("OUT_DIR")).join("interpreter_files.rs");
    fs::write(out, list).expect("the list can be written");
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("the folder can be read").path();
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_none_or(|name| NOT_INSTALLED.contains(&name)) {
            continue;
        }
        if path.is_dir() {
            collect(&path, paths);
        } else {
            paths.push(path);
        }
    }
}

fn build() -> PathBuf {
    let workspace = Path::new(&required("CARGO_MANIFEST_DIR")).join("../..");
    for name in SOURCES {
        println!(
            "cargo::rerun-if-changed={}",
            workspace.join("crates").join(name).display()
        );
    }
    println!(
        "cargo::rerun-if-changed={}",
        workspace.join("Cargo.lock").display()
    );

    // OUT_DIR is <target>/<profile>/build/<package>/out: one guest folder serves every profile.
    let out = PathBuf::from(required("OUT_DIR"));
    let target_folder = out
        .ancestors()
        .nth(4)
        .expect("a target folder")
        .join("guest");
    let triple = required("TARGET");
    let profile = env::var("SOULBOX_GUEST_PROFILE").unwrap_or_else(|_| "guest".to_owned());

    let mut cargo = Command::new(required("CARGO"));
    cargo
        .current_dir(&workspace)
        .args([
            "build",
            "--quiet",
            "--profile",
            &profile,
            "--target",
            &triple,
        ])
        .arg("--target-dir")
        .arg(&target_folder)
        // Position-dependent code is smaller and needs no relocation at start.
        .env(
            "CARGO_ENCODED_RUSTFLAGS",
            "-Ctarget-feature=+crt-static\u{1f}-Crelocation-model=static",
        );
    // What the outer cargo (or clippy) set for itself must not reach the inner one.
    for variable in [
        "RUSTFLAGS",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "CLIPPY_ARGS",
        "CARGO_TARGET_DIR",
        "CARGO_BUILD_TARGET",
        "CARGO_MAKEFLAGS",
        "MAKEFLAGS",
    ] {
        cargo.env_remove(variable);
    }
    for program in PROGRAMS {
        cargo.args(["--package", program]);
    }
    let status = cargo.status().expect("cargo can be started");
    assert!(
        status.success(),
        "the guest programs did not build: {cargo:?}"
    );
    let folder = if profile == "dev" { "debug" } else { &profile };
    target_folder.join(triple).join(folder)
}

fn required(variable: &str) -> String {
    env::var(variable).unwrap_or_else(|_| panic!("cargo sets {variable}"))
}
