//! A whole run.

use std::time::Instant;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;

use crate::{
    Error, Options, Progress, ServerChoice,
    alternatives::Alternatives,
    fleet::Fleet,
    report::{Report, machine},
    subject::Bench,
    verdicts,
};

/// What a run has started, and must end. A run that is interrupted is closed all the same.
#[derive(Debug)]
pub struct Session {
    options: Options,
    fleet: Fleet,
    others: Alternatives,
    scratch: TempDir,
}

impl Session {
    /// Starts nothing yet.
    pub fn new(options: Options) -> Result<Self, Error> {
        raise_file_limit();
        let parent = match &options.server {
            ServerChoice::Own { scratch, .. } => scratch.clone(),
            ServerChoice::Running(_) => std::env::temp_dir(),
        };
        let scratch = tempfile::Builder::new()
            .prefix("soulbox-bench-")
            .tempdir_in(&parent)
            .map_err(|source| Error::Scratch {
                path: parent,
                source,
            })?;
        Ok(Self {
            fleet: Fleet::new(&options, scratch.path().to_owned()),
            others: Alternatives::new(&options, scratch.path()),
            options,
            scratch,
        })
    }

    /// Measures everything that is wanted. May be dropped at any moment; [`Session::close`] ends
    /// what it has begun.
    pub async fn measure(&mut self, progress: &dyn Progress) -> Result<Report, Error> {
        let started_at = jiff::Timestamp::now().to_string();
        let begun = Instant::now();
        if let ServerChoice::Running(client) = &self.options.server {
            client.list_newest(1).await.map_err(Error::Unreachable)?;
        }
        let machine = machine(self.scratch.path()).await;
        let mut bench = Bench {
            options: &self.options,
            fleet: &mut self.fleet,
            others: &mut self.others,
            progress,
        };
        let groups = bench.measure().await?;
        Ok(Report {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            optimised: !cfg!(debug_assertions),
            started_at,
            seconds: begun.elapsed().as_secs_f64(),
            machine,
            verdicts: verdicts::of(&groups),
            groups,
        })
    }

    /// Ends every sandbox, server and daemon that was started, and removes their files.
    pub async fn close(mut self, progress: &dyn Progress) {
        self.fleet.close(progress).await;
        if let Err(failure) = self.others.close().await {
            progress.note(&format!("Docker could not be cleared away: {failure}"));
        }
        let path = self.scratch.path().to_owned();
        let removed = tokio::task::spawn_blocking(move || self.scratch.close()).await;
        if let Ok(Err(error)) = removed {
            progress.note(&format!("{} stays: {error}", path.display()));
        }
    }
}

/// A burst of a thousand takes as many connections.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // Without it, only bursts of many hundreds fail, and say why.
    setrlimit(Resource::Nofile, raised).ok();
}
