//! One execution: recognise, put in place, compile, run, tidy up.

use std::{
    io,
    time::{Duration, Instant},
};

use soulbox_envd_client::{CommandSpec, CopyRequest, EnvdClient, OutputStream, ProcessExit};
use uuid::Uuid;

use crate::{
    Error, Execution, LANGUAGES, Language, Outcome, Phase, Result, find, language::Toolchain,
};

/// Probes start a program at most; a busy sandbox may need a while.
const PROBE_LIMIT: Duration = Duration::from_secs(20);
/// Until a program runs. Whoever waits for the result should not wait for a sandbox that is mute.
const START_LIMIT: Duration = Duration::from_secs(10);
const PLACE_LIMIT: Duration = Duration::from_secs(30);
const TIDY_LIMIT: Duration = Duration::from_secs(20);
const STDIN: &str = ".soulbox-stdin";
const LARGEST_CODE: usize = 8 << 20;

/// Runs code in one sandbox.
#[derive(Debug, Clone)]
pub struct Executor {
    envd: EnvdClient,
}

/// Who runs the code, as numbers.
struct Account {
    uid: u64,
    gid: u64,
}

impl Executor {
    pub fn new(envd: EnvdClient) -> Self {
        Self {
            envd: envd.starting_within(START_LIMIT),
        }
    }

    /// Names of the languages that this sandbox can run.
    pub async fn languages(&self, user: Option<&str>) -> Result<Vec<&'static str>> {
        let each = LANGUAGES.iter().flat_map(|language| {
            let say = format!("echo {}", language.name);
            language.toolchains.iter().map(move |t| t.when(&say))
        });
        let script: String = each.collect();
        let phase = self.look(&script, user, 64 << 10).await?;
        let found = |language: &&Language| phase.stdout.lines().any(|line| line == language.name);
        Ok(LANGUAGES
            .iter()
            .filter(found)
            .map(|language| language.name)
            .collect())
    }

    /// Everything that the code does wrong is in the outcome; an error is about the sandbox or the
    /// request. Dropping the future ends the program and removes its files.
    pub async fn execute(&self, execution: &Execution) -> Result<Outcome> {
        if execution.code.len() + execution.stdin.len() > LARGEST_CODE {
            return Err(Error::TooLarge {
                limit: LARGEST_CODE,
            });
        }
        let nameless = |name: &&String| name.is_empty() || name.contains(['=', '\0']);
        if let Some(name) = execution.env.keys().find(nameless) {
            return Err(Error::NotAName(name.clone()));
        }
        let language = find(&execution.language)
            .ok_or_else(|| Error::UnknownLanguage(execution.language.clone()))?;
        let user = execution.user.as_deref();
        let (toolchain, account) = self.probe(language, user).await?;
        let folder = Folder::new(self, execution.user.clone());
        self.put_in_place(language, execution, &account, &folder)
            .await?;
        let mut outcome = Outcome {
            language: language.name,
            compile: None,
            run: None,
        };
        if let Some(compile) = toolchain.compile {
            let phase = self
                .phase(
                    compile,
                    &[],
                    execution,
                    &folder,
                    execution.compile_timeout(),
                )
                .await?;
            let compiled = phase.succeeded();
            outcome.compile = Some(phase);
            if !compiled {
                return Ok(outcome);
            }
        }
        let run = format!("exec {} \"$@\" < {STDIN}", toolchain.run);
        let phase = self
            .phase(
                &run,
                &execution.args,
                execution,
                &folder,
                execution.timeout(),
            )
            .await?;
        outcome.run = Some(phase);
        Ok(outcome)
    }

    async fn phase(
        &self,
        script: &str,
        args: &[String],
        execution: &Execution,
        folder: &Folder<'_>,
        limit: Duration,
    ) -> Result<Phase> {
        let place = Some((folder.path.as_str(), execution));
        let user = execution.user.as_deref();
        self.shell(script, args, user, place, limit, execution.max_output())
            .await
    }

    /// What a short script finds. One that does not end found nothing out, neither that something
    /// is there nor that it is not.
    async fn look(&self, script: &str, user: Option<&str>, max_output: usize) -> Result<Phase> {
        let phase = self
            .shell(script, &[], user, None, PROBE_LIMIT, max_output)
            .await?;
        if phase.timed_out {
            return Err(Error::Mute {
                what: "looking for the language",
                limit: PROBE_LIMIT,
            });
        }
        Ok(phase)
    }

    /// The first toolchain that is there, and who will run it.
    async fn probe(
        &self,
        language: &'static Language,
        user: Option<&str>,
    ) -> Result<(&'static Toolchain, Account)> {
        let numbered = language.toolchains.iter().enumerate();
        let choices = numbered.map(|(number, t)| t.when(&format!("exit {}", FIRST + number)));
        let choices: String = choices.collect();
        let script = format!("echo $(id -u) $(id -g)\n{choices}exit 1\n");
        let phase = self.look(&script, user, 4 << 10).await?;
        let chosen = phase
            .exit_code
            .and_then(|code| usize::try_from(code).ok()?.checked_sub(FIRST))
            .and_then(|number| language.toolchains.get(number));
        let Some(toolchain) = chosen else {
            return Err(Error::NotInstalled {
                language: language.name,
                installed: self.languages(user).await?,
            });
        };
        let mut ids = phase.stdout.split_whitespace().map(str::parse);
        match (ids.next(), ids.next()) {
            (Some(Ok(uid)), Some(Ok(gid))) => Ok((toolchain, Account { uid, gid })),
            _ => Err(Error::Sandbox(soulbox_envd_client::Error::Protocol(
                "`id` did not say who runs the code".to_owned(),
            ))),
        }
    }

    async fn put_in_place(
        &self,
        language: &Language,
        execution: &Execution,
        account: &Account,
        folder: &Folder<'_>,
    ) -> Result<()> {
        let files = [
            (language.source, execution.code.as_bytes()),
            (STDIN, execution.stdin.as_bytes()),
        ];
        let archive = archive(&folder.name, &files, account).map_err(Error::Archive)?;
        let copy = CopyRequest {
            src: String::new(),
            dest: PARENT.to_owned(),
            keep_owners: true,
            ..CopyRequest::default()
        };
        let copying = self.envd.copy_in(&copy, io::Cursor::new(archive));
        match tokio::time::timeout(PLACE_LIMIT, copying).await {
            Ok(copied) => Ok(copied?),
            Err(_elapsed) => Err(Error::Mute {
                what: "putting the code in place",
                limit: PLACE_LIMIT,
            }),
        }
    }

    /// By a login shell, so that what profiles add to `PATH` is found.
    async fn shell(
        &self,
        script: &str,
        args: &[String],
        user: Option<&str>,
        place: Option<(&str, &Execution)>,
        limit: Duration,
        max_output: usize,
    ) -> Result<Phase> {
        let mut command = CommandSpec {
            program: "/bin/sh".to_owned(),
            args: ["-l", "-c", script, "soulbox"].map(str::to_owned).into(),
            user: user.unwrap_or_default().to_owned(),
            ..CommandSpec::default()
        };
        command.args.extend_from_slice(args);
        if let Some((folder, execution)) = place {
            command.cwd = Some(folder.to_owned());
            command.env.clone_from(&execution.env);
        }
        let (mut stdout, mut stderr) = (Capture::new(max_output), Capture::new(max_output));
        let started = Instant::now();
        let mut output = |stream, bytes: &[u8]| match stream {
            OutputStream::Stdout => stdout.add(bytes),
            OutputStream::Stderr => stderr.add(bytes),
        };
        let exit = match self.envd.run(&command, &mut output, limit).await {
            Ok(exit) => Some(exit),
            Err(soulbox_envd_client::Error::TooSlow {
                what: "the command",
                ..
            }) => None,
            Err(error) => return Err(error.into()),
        };
        let (exit_code, signal) = match &exit {
            Some(ProcessExit::Code(code)) => (Some(*code), None),
            Some(ProcessExit::Signal(name)) => (None, Some(name.clone())),
            None => (None, Some("killed".to_owned())),
        };
        Ok(Phase {
            exit_code,
            signal,
            truncated: stdout.truncated || stderr.truncated,
            stdout: stdout.text(),
            stderr: stderr.text(),
            time_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
            timed_out: exit.is_none(),
        })
    }
}

/// Exit codes of the probe script, above those that shells use themselves.
const FIRST: usize = 64;
const PARENT: &str = "/tmp/";

/// Where one execution's files are. Dropped, they are removed.
struct Folder<'a> {
    executor: &'a Executor,
    name: String,
    path: String,
    user: Option<String>,
}

impl<'a> Folder<'a> {
    fn new(executor: &'a Executor, user: Option<String>) -> Self {
        let name = format!("soulbox-run-{}", Uuid::new_v4().simple());
        Self {
            executor,
            path: format!("{PARENT}{name}"),
            name,
            user,
        }
    }
}

impl Drop for Folder<'_> {
    fn drop(&mut self) {
        let (envd, path, user) = (
            self.executor.envd.clone(),
            self.path.clone(),
            self.user.take().unwrap_or_default(),
        );
        tokio::spawn(async move {
            let command = CommandSpec {
                program: "/bin/rm".to_owned(),
                args: vec!["-rf".to_owned(), "--".to_owned(), path],
                user,
                ..CommandSpec::default()
            };
            // The sandbox may be gone, and with it the files.
            drop(envd.run(&command, &mut |_, _| {}, TIDY_LIMIT).await);
        });
    }
}

/// The first bytes of a stream.
struct Capture {
    bytes: Vec<u8>,
    limit: usize,
    truncated: bool,
}

impl Capture {
    fn new(limit: usize) -> Self {
        Self {
            bytes: Vec::new(),
            limit,
            truncated: false,
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        let room = self.limit - self.bytes.len();
        self.truncated |= bytes.len() > room;
        self.bytes.extend(bytes.iter().take(room));
    }

    fn text(self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

fn archive(folder: &str, files: &[(&str, &[u8])], account: &Account) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    let header = |size: usize, mode: u32, kind: tar::EntryType| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(account.uid);
        header.set_gid(account.gid);
        header.set_size(size as u64);
        header
    };
    let mut top = header(0, 0o700, tar::EntryType::Directory);
    archive.append_data(&mut top, format!("{folder}/"), io::empty())?;
    for (name, content) in files {
        let mut entry = header(content.len(), 0o600, tar::EntryType::Regular);
        archive.append_data(&mut entry, format!("{folder}/{name}"), *content)?;
    }
    archive.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_keeps_the_beginning_and_says_when_there_was_more() {
        let mut capture = Capture::new(4);
        capture.add(b"abc");
        assert!(!capture.truncated);
        capture.add(b"de");
        capture.add(b"f");
        assert!(capture.truncated);
        assert_eq!(capture.text(), "abcd");
    }

    #[test]
    fn the_folder_and_its_files_belong_to_whoever_runs_the_code() {
        let account = Account {
            uid: 1000,
            gid: 1001,
        };
        let bytes = archive("x", &[("main.py", b"1")], &account).unwrap();
        let mut archive = tar::Archive::new(bytes.as_slice());
        let mut seen = Vec::new();
        for entry in archive.entries().unwrap() {
            let entry = entry.unwrap();
            let header = entry.header();
            assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (1000, 1001));
            seen.push(entry.path().unwrap().display().to_string());
        }
        assert_eq!(seen, ["x/", "x/main.py"]);
    }
}
