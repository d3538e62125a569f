//! The server's names: answered beside it, and written down for `soulbox trust`.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    path::Path,
};

use anyhow::Context;
use soulbox_net::WildcardDns;
use soulbox_trust::{NAMES_FILE, Names};

use crate::{
    Config,
    env_files::{Endpoints, reachable},
    private_file::{self, PUBLIC},
    tls,
};

/// `None`: switched off, or its usual address is taken, as by a second server on this machine.
pub(crate) async fn bind(config: &Config) -> anyhow::Result<Option<WildcardDns>> {
    let Some(wanted) = config.name_server else {
        return Ok(None);
    };
    match WildcardDns::bind(wanted.listen, &config.domain, wanted.answer).await {
        Ok(server) => {
            let address = server.address()?;
            tracing::debug!(%address, domain = config.domain, answer = %wanted.answer, "answering names");
            Ok(Some(server))
        }
        Err(error) if wanted.is_required => Err(error).with_context(|| {
            format!(
                "could not answer names on {} (--dns): choose another address, or `off`",
                wanted.listen
            )
        }),
        Err(error) => {
            let address = wanted.listen;
            tracing::warn!(%error, %address, "names are not answered here, and `soulbox trust` needs that: `--dns` chooses another address");
            Ok(None)
        }
    }
}

/// Beside the CA's certificate. Without HTTPS there are no names.
pub(crate) fn write(
    config: &Config,
    endpoints: &Endpoints,
    dns: Option<SocketAddr>,
) -> io::Result<()> {
    let folder = tls::folder(&config.data_dir);
    let path = folder.join(NAMES_FILE);
    let Some(https) = endpoints.https else {
        return remove(&path);
    };
    let answer: IpAddr = config
        .name_server
        .map_or(reachable(https).ip(), |server| server.answer);
    let names = Names {
        domain: config.domain.clone(),
        https_port: https.port(),
        address: answer,
        dns,
        local_ca: endpoints.needs_local_ca,
    };
    fs_err::create_dir_all(&folder)?;
    private_file::write_if_other(&path, PUBLIC, &serde_json::to_vec_pretty(&names)?)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs_err::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
