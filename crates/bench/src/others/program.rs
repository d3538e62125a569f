//! Command lines, timed and bounded.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use tokio::{
    io::AsyncReadExt,
    process::{Child, Command},
    time::timeout,
};

use super::WORD;
use crate::{Contender, Failure};

/// No alternative needs so long for one command, however slow the machine.
const LIMIT: Duration = Duration::from_mins(1);
/// Asking a program for its version.
const SHORT: Duration = Duration::from_secs(10);

/// What of a command is timed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Until {
    /// The word has arrived; the end is awaited, but not counted.
    FirstOutput,
    /// The program has ended.
    Exit,
}

/// A command line that is run once per round.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) method: String,
    pub(crate) line: Vec<OsString>,
    pub(crate) until: Until,
}

/// Finds a program in `PATH` and where administrators' tools are.
pub(crate) fn find(name: &str) -> Result<PathBuf, Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
        .ok_or_else(|| Failure(format!("{name} is not installed")))
}

/// The words of a command line, whatever kinds of strings they are.
pub(crate) fn line<const N: usize>(program: &Path, words: [&OsStr; N]) -> Vec<OsString> {
    std::iter::once(program.as_os_str())
        .chain(words)
        .map(OsStr::to_owned)
        .collect()
}

/// Runs it to its end and gives what it printed.
pub(crate) async fn output_of(line: &[OsString], limit: Duration) -> Result<String, Failure> {
    let finished = timeout(limit, async {
        let child = spawn(line)?;
        ended(child, Vec::new()).await
    });
    finished.await.map_err(|_| too_long(limit))?
}

/// The first line of what it prints when asked for its version; `None` when it is not there.
pub(crate) async fn first_line_of(name: &str, argument: &str) -> Option<String> {
    let line = line(&find(name).ok()?, [argument.as_ref()]);
    let text = output_of(&line, SHORT).await.ok()?;
    text.lines().next().map(|first| first.trim().to_owned())
}

impl Program {
    /// Tries it once, so that what does not work here is reported before the run.
    pub(crate) async fn tried(mut self) -> Result<Box<dyn Contender>, Failure> {
        match self.round().await {
            Ok(_) => Ok(Box::new(self)),
            Err(failure) => Err(Failure(format!("does not work here: {failure}"))),
        }
    }
}

#[async_trait]
impl Contender for Program {
    fn name(&self) -> &str {
        self.name
    }

    fn method(&self) -> &str {
        &self.method
    }

    async fn round(&mut self) -> Result<Duration, Failure> {
        // A child that is dropped at the limit is killed.
        timeout(LIMIT, timed(&self.line, self.until))
            .await
            .map_err(|_| too_long(LIMIT))?
    }
}

async fn timed(line: &[OsString], until: Until) -> Result<Duration, Failure> {
    let begun = Instant::now();
    let mut child = spawn(line)?;
    drop(child.stdin.take());
    match until {
        Until::Exit => {
            ended(child, Vec::new()).await?;
            Ok(begun.elapsed())
        }
        Until::FirstOutput => {
            let mut seen = Vec::new();
            if let Some(stdout) = child.stdout.as_mut() {
                while seen.len() <= WORD.len() {
                    if stdout.read_buf(&mut seen).await.map_err(Failure::new)? == 0 {
                        break;
                    }
                }
            }
            let took = begun.elapsed();
            let text = ended(child, seen).await?;
            if text.trim_end() == WORD {
                Ok(took)
            } else {
                Err(Failure(format!("it printed {text:?} instead of {WORD}")))
            }
        }
    }
}

fn spawn(line: &[OsString]) -> Result<Child, Failure> {
    let (program, arguments) = line
        .split_first()
        .ok_or_else(|| Failure("an empty command".to_owned()))?;
    Command::new(program)
        .args(arguments)
        // Not /dev/null: runsc gives away whatever it gets as standard input to `nobody`.
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| Failure(format!("{}: {error}", program.display())))
}

/// Waits for the end; `seen` is what of its output was read already.
async fn ended(child: Child, mut seen: Vec<u8>) -> Result<String, Failure> {
    let done = child.wait_with_output().await.map_err(Failure::new)?;
    if done.status.success() {
        seen.extend(done.stdout);
        return Ok(String::from_utf8_lossy(&seen).into_owned());
    }
    let complaint = String::from_utf8_lossy(&done.stderr);
    let said = complaint.trim().lines().last().unwrap_or("no message");
    Err(Failure(format!("{}: {said}", done.status)))
}

fn too_long(limit: Duration) -> Failure {
    Failure(format!("took longer than {} s", limit.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, until: Until) -> Program {
        Program {
            name: "shell",
            method: String::new(),
            line: line(Path::new("/bin/sh"), ["-c", script].map(AsRef::as_ref)),
            until,
        }
    }

    #[tokio::test]
    async fn the_first_output_is_timed_and_the_end_is_not() {
        let mut contender = shell("echo hello; sleep 0.5", Until::FirstOutput);
        let begun = Instant::now();
        let took = contender.round().await.unwrap();
        assert!(took + Duration::from_millis(400) < begun.elapsed());
    }

    #[tokio::test]
    async fn a_command_without_output_is_timed_to_its_end() {
        let took = shell("sleep 0.2", Until::Exit).round().await.unwrap();
        assert!(took >= Duration::from_millis(200));
    }

    #[tokio::test]
    async fn a_failure_is_told_with_what_the_program_said_last() {
        let contender = shell("echo one >&2; echo no daemon >&2; exit 3", Until::Exit);
        let failure = contender.tried().await.err().unwrap();
        assert_eq!(
            failure.to_string(),
            "does not work here: exit status: 3: no daemon"
        );
    }

    #[tokio::test]
    async fn another_word_is_not_taken_for_the_right_one() {
        let failure = shell("echo goodbye", Until::FirstOutput).round().await;
        assert!(failure.unwrap_err().0.contains("goodbye"));
    }

    #[tokio::test]
    async fn a_command_that_hangs_is_ended() {
        let line = shell("echo $$; sleep 60", Until::Exit).line;
        let failure = output_of(&line, Duration::from_millis(50)).await;
        assert_eq!(failure.unwrap_err().0, "took longer than 0 s");
    }

    #[tokio::test]
    async fn what_is_not_installed_says_so() {
        let failure = find("soulbox-no-such-program").unwrap_err();
        assert_eq!(failure.0, "soulbox-no-such-program is not installed");
        assert_eq!(first_line_of("soulbox-no-such-program", "-v").await, None);
    }
}
