//! The roots that this system trusts, and ours: `SSL_CERT_FILE` replaces the roots of a client, so
//! it must hold both.

use std::{io, path::Path};

use fs_err as fs;

use crate::private_file::{self, PUBLIC};

/// Where distributions keep their roots in one file.
const SYSTEM_ROOTS: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

pub(super) fn write(path: &Path, ca: &str) -> io::Result<()> {
    let roots = SYSTEM_ROOTS
        .iter()
        .find_map(|path| fs::read_to_string(path).ok());
    let mut text = roots.unwrap_or_default();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(ca);
    if private_file::read(path)?.as_deref() == Some(&*text) {
        return Ok(());
    }
    private_file::write(path, PUBLIC, text.as_bytes())
}
