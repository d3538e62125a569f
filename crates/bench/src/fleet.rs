//! The servers that are measured: started here, one per size of the warm pool, or one that runs
//! already.
//!
//! A server of our own ends with us, whatever ends us: it reads our end of a pipe
//! ([`SERVER_COMMAND`]), and when that closes it ends its sandboxes, itself and its folder.

mod arguments;
mod ending;
mod folders;
mod own;
mod pool;

use std::{ffi::OsStr, path::PathBuf};

use futures_util::future::try_join_all;
use soulbox_client::Client;

use arguments::arguments;
pub(crate) use arguments::check;
pub(crate) use ending::StallDetector;
pub use ending::{end_all, left};
pub(crate) use folders::living;
pub use own::SERVER_COMMAND;
pub(crate) use own::{OwnServer, STOP_LIMIT};
pub(crate) use pool::{SETTLE, filled};

use crate::{
    Error, Failure, Options, Progress, ServerChoice,
    suites::{RunLabel, Target},
};

/// Sandboxes kept ready by a server that is measured warm: the default of `soulbox serve`.
pub(crate) const EVERYDAY: usize = 8;

/// How the names of the servers' folders begin.
const FOLDER: &str = "server-";

/// Whether something in the scratch folder is a server's, which removes it when it ends.
pub(crate) fn is_of_a_server(name: &OsStr) -> bool {
    name.to_string_lossy().starts_with(FOLDER)
}

#[derive(Debug)]
pub(crate) enum Fleet {
    Own(Own),
    Running {
        client: Box<Client>,
        label: RunLabel,
    },
}

/// Servers of our own, by the size of their pool.
#[derive(Debug)]
pub(crate) struct Own {
    program: PathBuf,
    scratch: PathBuf,
    arguments: Vec<String>,
    most_sandboxes: usize,
    label: RunLabel,
    servers: Vec<(usize, OwnServer)>,
    started: usize,
}

impl Fleet {
    pub(crate) fn new(options: &Options, scratch: PathBuf) -> Self {
        let label = RunLabel::new();
        match &options.server {
            ServerChoice::Own {
                program, arguments, ..
            } => Self::Own(Own {
                program: program.clone(),
                scratch,
                arguments: arguments.clone(),
                most_sandboxes: options.most_sandboxes(),
                label,
                servers: Vec::new(),
                started: 0,
            }),
            ServerChoice::Running(client) => Self::Running {
                client: client.clone(),
                label,
            },
        }
    }

    /// Servers with pools of these sizes, and no other pools: they use memory and cpu. A server
    /// that runs already cannot be had with another pool than it has.
    pub(crate) async fn only(
        &mut self,
        pools: &[usize],
        progress: &dyn Progress,
    ) -> Result<Vec<Result<Target, Failure>>, Error> {
        match self {
            Self::Own(own) => {
                // An idle one takes part all the same: its prepared slots are links and namespaces,
                // which the kernel goes through for those of others.
                own.keep(|pool| pools.contains(&pool), progress).await;
                own.start(pools).await?;
                let subjects = pools.iter().map(|pool| own.target(*pool));
                Ok(subjects.collect())
            }
            Self::Running { client, label } => Ok(pools
                .iter()
                .map(|pool| match pool {
                    0 => Err(Failure::new(
                        "a running server is taken as it is: only one that the bench starts can \
                         be without a pool",
                    )),
                    _ => Ok(Target::elsewhere(client.as_ref().clone(), label.clone())),
                })
                .collect()),
        }
    }

    /// As users have it.
    pub(crate) async fn everyday(
        &mut self,
        progress: &dyn Progress,
    ) -> Result<Result<Target, Failure>, Error> {
        Ok(self.only(&[EVERYDAY], progress).await?.remove(0))
    }

    /// For what has nothing to do with a pool: one of our own has none, which would only be busy.
    pub(crate) async fn plain(
        &mut self,
        progress: &dyn Progress,
    ) -> Result<Result<Target, Failure>, Error> {
        let pool = match self {
            Self::Own(_) => 0,
            Self::Running { .. } => EVERYDAY,
        };
        Ok(self.only(&[pool], progress).await?.remove(0))
    }

    /// Ends every sandbox that was made, and the servers that were started.
    pub(crate) async fn close(&mut self, progress: &dyn Progress) {
        match self {
            Self::Own(own) => own.keep(|_| false, progress).await,
            Self::Running { client, label } => {
                if let Err(failure) = label.sweep(client).await {
                    progress.note(&format!(
                        "not all sandboxes of the bench could be ended ({failure}); they end at \
                         their timeouts"
                    ));
                }
            }
        }
    }
}

impl Own {
    async fn keep(&mut self, wanted: impl Fn(usize) -> bool, progress: &dyn Progress) {
        let servers = std::mem::take(&mut self.servers);
        let (kept, ended): (Vec<_>, Vec<_>) =
            servers.into_iter().partition(|(pool, _)| wanted(*pool));
        self.servers = kept;
        let ends = ended.into_iter().map(|(_, server)| server.stop(progress));
        futures_util::future::join_all(ends).await;
    }

    async fn start(&mut self, pools: &[usize]) -> Result<(), Error> {
        let missing: Vec<usize> = pools
            .iter()
            .copied()
            .filter(|pool| !self.servers.iter().any(|(known, _)| known == pool))
            .collect();
        let first = self.started;
        self.started += missing.len();
        let starts = missing.iter().enumerate().map(|(number, pool)| {
            let data = self.scratch.join(format!("{FOLDER}{}", first + number));
            let arguments = arguments(*pool, self.most_sandboxes, &self.arguments);
            OwnServer::start(&self.program, data, arguments)
        });
        let servers = try_join_all(starts).await?;
        self.servers.extend(missing.into_iter().zip(servers));
        Ok(())
    }

    fn target(&self, pool: usize) -> Result<Target, Failure> {
        self.servers
            .iter()
            .find(|(known, _)| *known == pool)
            .map(|(_, server)| Target::own(server, self.label.clone(), pool))
            .ok_or_else(|| Failure::new("the server is not there"))
    }
}
