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
    fleet::{Fleet, STOP_LIMIT, StallDetector, check, is_of_a_server, living},
    host::quiet,
    report::{BUSY_BEFORE, Report, Run, machine},
    suites::Bench,
    verdicts,
};

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
        // What nobody judges needs no quiet.
        let busy = match self.options.not_judged() {
            None => quiet(progress).await,
            Some(_) => None,
        };
        let started_at = jiff::Timestamp::now().to_string();
        let begun = Instant::now();
        if let ServerChoice::Running(client) = &self.options.server {
            client.list_newest(1).await.map_err(Error::Unreachable)?;
        }
        let run = Run::of(&self.options, busy);
        let mut machine = machine(&self.scratch).await;
        if let Some(busy) = busy {
            let text = format!("{} of its cpu time", busy.percent());
            machine.insert(BUSY_BEFORE.to_owned(), text);
        }
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
            run,
            started_at,
            seconds: begun.elapsed().as_secs_f64(),
            machine,
            verdicts: verdicts::of(&groups, self.options.not_judged()),
            groups,
        })
    }

    /// Ends every sandbox, server and daemon that was started, and removes their files.
    pub async fn close(mut self, progress: &dyn Progress) {
        self.fleet.close(progress).await;
        if let Err(failure) = self.others.close().await {
            progress.note(&format!("Docker could not be cleared away: {failure}"));
        }
        match remove(&self.scratch, STOP_LIMIT).await {
            Ok(stay) if stay.is_empty() => {}
            Ok(stay) => {
                for server in stay {
                    progress.note(&stays(&server, living(&server).await));
                }
            }
            Err(error) => progress.note(&format!("{} stays: {error}", self.scratch.display())),
        }
    }
}

/// What cannot be ended here, and how it can.
fn stays(server: &Path, sandboxes: usize) -> String {
    let server = server.display();
    format!(
        "{sandboxes} sandboxes could not be ended; their folder {server} stays. End them with \
         `soulbox serve --data-dir {server}`, then `soulbox kill --all --data-dir {server}` beside \
         it; remove the folder when that server has stopped"
    )
}

/// A server removes its own folder when it has ended its sandboxes, also one that ends by itself
/// because the run was interrupted; only then may the rest go. Returns the folders that stay.
async fn remove(scratch: &Path, limit: Duration) -> io::Result<Vec<PathBuf>> {
    let mut stall = StallDetector::new(limit);
    loop {
        let servers = match servers_in(scratch).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            servers => servers?,
        };
        if servers.is_empty() {
            return match tokio::fs::remove_dir_all(scratch).await {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(Vec::new()),
            };
        }
        let mut left = servers.len();
        for server in &servers {
            left += living(server).await;
        }
        if !stall.is_progressing(left) {
            return Ok(servers);
        }
        sleep(LOOK_AGAIN).await;
    }
}

async fn servers_in(scratch: &Path) -> io::Result<Vec<PathBuf>> {
    let mut entries = tokio::fs::read_dir(scratch).await?;
    let mut servers = Vec::new();
    while let Some(entry) = entries.next_entry().await? {
        if is_of_a_server(&entry.file_name()) {
            servers.push(entry.path());
        }
    }
    Ok(servers)
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
            async move { remove(&scratch, STOP_LIMIT).await }
        });
        tokio::task::yield_now().await;
        assert!(scratch.join("others").exists());
        std::fs::remove_dir(&server).unwrap();
        let none: Vec<PathBuf> = Vec::new();
        assert_eq!(removing.await.unwrap().unwrap(), none);
        assert!(!scratch.exists());
        assert_eq!(remove(&scratch, STOP_LIMIT).await.unwrap(), none);
    }

    #[tokio::test]
    async fn the_folder_of_sandboxes_that_do_not_end_stays_and_is_told() {
        let scratch = tempfile::tempdir().unwrap();
        let server = scratch.path().join("server-0");
        let sandbox = server.join("sandboxes/i1");
        std::fs::create_dir_all(&sandbox).unwrap();
        std::fs::write(sandbox.join("running.json"), "{}").unwrap();
        let stay = remove(scratch.path(), Duration::from_millis(1)).await;
        assert_eq!(stay.unwrap(), std::slice::from_ref(&server));
        assert!(sandbox.exists());
        let text = stays(&server, living(&server).await);
        assert!(text.starts_with("1 sandboxes could not be ended"), "{text}");
        assert!(text.contains("kill --all --data-dir"), "{text}");
    }
}
