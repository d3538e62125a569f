//! Where systems keep the certificate authorities that an administrator adds.

use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::{
    Error, Result,
    plan::{Change, Command, Part},
};

/// A folder, what a file in it must be called, and the program that makes the system's bundles of it.
struct Store {
    folder: &'static str,
    extension: &'static str,
    program: &'static str,
    of: &'static str,
}

const STORES: [Store; 4] = [
    Store {
        folder: "/usr/local/share/ca-certificates",
        extension: "crt",
        program: "update-ca-certificates",
        of: "Debian, Ubuntu, Alpine",
    },
    Store {
        folder: "/etc/pki/ca-trust/source/anchors",
        extension: "pem",
        program: "update-ca-trust",
        of: "Fedora, RHEL",
    },
    Store {
        folder: "/etc/ca-certificates/trust-source/anchors",
        extension: "pem",
        program: "update-ca-trust",
        of: "Arch",
    },
    Store {
        folder: "/etc/pki/trust/anchors",
        extension: "pem",
        program: "update-ca-certificates",
        of: "openSUSE",
    },
];
const PROGRAM_FOLDERS: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

pub(crate) fn part(root: &Path, domain: &str, ca: &str) -> Result<Part> {
    let found = STORES.iter().find_map(|store| {
        let program = program(root, store.program)?;
        // Its folder need not be there yet on Debian; elsewhere it tells whose program it is.
        let folder_is_its = under(root, store.folder).is_dir()
            || (store.of.starts_with("Debian") && under(root, "/etc/ssl/certs").is_dir());
        folder_is_its.then_some((store, program))
    });
    let Some((store, program)) = found else {
        let hint = "install the package ca-certificates; or let programs be told by `env.tls`, which \
                    needs no system store";
        let problem = "this system has none of the stores for certificates that are known here";
        return Err(Error::impossible(problem, hint));
    };
    let file = format!("soulbox-{domain}.{}", store.extension);
    let path = Path::new(store.folder).join(&file);
    Ok(Part {
        what: format!("the certificate authority of *.{domain}, into the system's store"),
        changes: vec![Change::Add {
            path,
            content: ca.to_owned(),
        }],
        after_undo: vec![forget(root, &program, &file)],
        after: vec![Command::new(program, &[])],
        relies_on: None,
    })
}

/// Debian's program leaves the links of a file that is gone, and tells nobody (Java has a store of its own)
/// unless its configuration says that the file is not wanted.
fn forget(root: &Path, program: &str, file: &str) -> Command {
    let is_debians = fs::read_to_string(under(root, program))
        .is_ok_and(|text| text.starts_with("#!") && text.contains("--certsconf"));
    if !is_debians {
        return Command::new(program, &[]);
    }
    let script = format!(
        "conf=$(mktemp) && {{ cat /etc/ca-certificates.conf; echo '!{file}'; }} > \"$conf\" && {program} \
         --certsconf \"$conf\"; code=$?; rm -f \"$conf\"; exit $code"
    );
    Command::new("/bin/sh", &["-c", &script])
}

pub(crate) fn under(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

pub(crate) fn program(root: &Path, name: &str) -> Option<String> {
    PROGRAM_FOLDERS
        .iter()
        .map(|folder| format!("{folder}/{name}"))
        .find(|path| under(root, path).is_file())
}
