//! A whole run.

use std::{
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::time::sleep;

use crate::{
    Error, Options, Progress, ServerChoice,
    alternatives::Alternatives,
    fleet::{Fleet, check, is_of_a_server},
    report::{Report, machine},
    subject::Bench,
    verdicts,
};

/// How long a server may take that ends by itself, because the run was interrupted meanwhile.
const GONE_LIMIT: Duration = Duration::from_mins(1);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What a run has started, and must end. A run that is interrupted is closed all the same.
#[derive(Debug)]
pub struct Session {
    options: Options,
    fleet: Fleet,
    others: Alternatives,
    /// Not removed by being dropped: servers that end by themselves need their folders until then.
    scratch: PathBuf,
}

impl Session {
    /// Starts nothing yet.
    pub fn new(options: Options) -> Result<Self, Error> {
        if let ServerChoice::Own { arguments, .. } = &options.server {
            check(arguments)?;
        }
        raise_file_limit();
        let parent = match &options.server {
            ServerChoice::Own { scratch, .. } => scratch.clone(),
            ServerChoice::Running(_) => std::env::temp_dir(),
        };
        let scratch = tempfile::Builder::new()
            .prefix("soulbox-bench-")
            .tempdir_in(&parent)
            .map(tempfile::TempDir::keep)
            .map_err(|source| Error::Scratch {
                path: parent,
                source,
            })?;
        Ok(Self {
            fleet: Fleet::new(&options, scratch.clone()),
            others: Alternatives::new(&options, &scratch),
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
        let machine = machine(&self.scratch).await;
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
        if let Err(error) = remove(&self.scratch).await {
            progress.note(&format!("{} stays: {error}", self.scratch.display()));
        }
    }
}

/// A server removes its own folder when it has ended; only then may the rest go.
async fn remove(scratch: &Path) -> io::Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < GONE_LIMIT {
        let mut left = false;
        let mut entries = match tokio::fs::read_dir(scratch).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        while let Some(entry) = entries.next_entry().await? {
            left |= is_of_a_server(&entry.file_name());
        }
        if !left {
            return match tokio::fs::remove_dir_all(scratch).await {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                result => result,
            };
        }
        sleep(LOOK_AGAIN).await;
    }
    Err(io::Error::other("a server that was started has not ended"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_folder_goes_when_the_servers_have_taken_theirs_away() {
        let scratch = tempfile::tempdir().unwrap().keep();
        std::fs::create_dir_all(scratch.join("others/docker")).unwrap();
        let server = scratch.join("server-0");
        std::fs::create_dir(&server).unwrap();
        let removing = tokio::spawn({
            let scratch = scratch.clone();
            async move { remove(&scratch).await }
        });
        tokio::task::yield_now().await;
        assert!(scratch.join("others").exists());
        std::fs::remove_dir(&server).unwrap();
        removing.await.unwrap().unwrap();
        assert!(!scratch.exists());
        remove(&scratch).await.unwrap();
    }
}
