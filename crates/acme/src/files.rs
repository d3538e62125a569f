//! The account and the certificate. Key and chain are one file: a crash between two would leave a pair that
//! does not fit.

use std::{
    io,
    path::{Path, PathBuf},
};

use instant_acme::AccountCredentials;
use serde::{Deserialize, Serialize};

use crate::{Error, Issued};

const SECRET: u32 = 0o600;
const ACCOUNT: &str = "account.json";

#[derive(Serialize, Deserialize)]
pub(crate) struct KeptAccount {
    pub(crate) directory: String,
    pub(crate) credentials: AccountCredentials,
}

/// Key and chain.
pub fn certificate_file(folder: &Path) -> PathBuf {
    folder.join("certificate.pem")
}

pub(crate) fn read_account(folder: &Path) -> Result<Option<KeptAccount>, Error> {
    let path = folder.join(ACCOUNT);
    let Some(text) = read(&path)? else {
        return Ok(None);
    };
    serde_json::from_str(&text)
        .map(Some)
        .map_err(|error| Error::File {
            path,
            source: error.into(),
        })
}

pub(crate) fn write_account(folder: &Path, account: &KeptAccount) -> Result<(), Error> {
    let path = folder.join(ACCOUNT);
    let text = serde_json::to_vec_pretty(account).map_err(io::Error::from);
    text.and_then(|text| soulbox_durable::write(&path, SECRET, &text))
        .map_err(|source| Error::File { path, source })
}

pub(crate) fn forget_account(folder: &Path) -> Result<(), Error> {
    let path = folder.join(ACCOUNT);
    soulbox_durable::remove(&path).map_err(|source| Error::File { path, source })
}

pub(crate) fn write_certificate(folder: &Path, key: &str, chain: &str) -> Result<Issued, Error> {
    let issued = Issued::read(chain)?;
    let path = certificate_file(folder);
    let text = format!("{}\n{chain}", key.trim_end());
    soulbox_durable::write(&path, SECRET, text.as_bytes())
        .map_err(|source| Error::File { path, source })?;
    Ok(issued)
}

pub(crate) fn read_certificate(folder: &Path) -> Result<Option<Issued>, Error> {
    read(&certificate_file(folder))?
        .map(|text| Issued::read(&text))
        .transpose()
}

fn read(path: &Path) -> Result<Option<String>, Error> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::File {
            path: path.to_owned(),
            source,
        }),
    }
}
