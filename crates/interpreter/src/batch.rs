//! Programs that run once: written to a folder of their own, compiled if the language needs it, run
//! with limits, and gone. In any language whose tools are installed.

mod account;
mod catalogue;
mod job;
mod source;
mod workspace;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use self::{
    account::Account,
    catalogue::{Language, Toolchain, Tools},
    job::{Job, Step},
    workspace::Workspace,
};
use crate::{envd::Variables, options::Options};

const RUN_TIME: u64 = 30_000;
const COMPILE_TIME: u64 = 120_000;
const MAX_TIME: u64 = 3_600_000;
const OUTPUT: usize = 1 << 20;
const MAX_OUTPUT: usize = 16 << 20;

/// One program and how to run it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Program {
    pub(crate) language: String,
    pub(crate) code: String,
    #[serde(default)]
    pub(crate) stdin: String,
    #[serde(default)]
    pub(crate) args: Vec<String>,
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    /// More files beside the source, by name.
    #[serde(default)]
    pub(crate) files: BTreeMap<String, String>,
    /// Where it runs; its own folder unless told otherwise.
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) compile_timeout_ms: Option<u64>,
    /// Bytes kept of each output stream.
    pub(crate) output_limit: Option<usize>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) language: &'static str,
    /// What ran it, for example `gcc`.
    pub(crate) toolchain: &'static str,
    /// Absent in languages that are not compiled.
    pub(crate) compile: Option<Step>,
    /// Absent when the program did not compile.
    pub(crate) run: Option<Step>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("there is no language {language}")]
    UnknownLanguage {
        language: String,
        installed: Vec<&'static str>,
    },
    #[error("{language} is not installed in this sandbox: none of {wanted} was found")]
    NotInstalled {
        language: &'static str,
        wanted: String,
        installed: Vec<&'static str>,
    },
    #[error("{0}")]
    Invalid(String),
    #[error("the program's folder cannot be prepared: {0}")]
    Workspace(std::io::Error),
    #[error("the program cannot be started: {0}")]
    Start(std::io::Error),
}

impl Error {
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::UnknownLanguage { .. } => "unknown_language",
            Self::NotInstalled { .. } => "language_not_installed",
            Self::Invalid(_) => "invalid_request",
            Self::Workspace(_) | Self::Start(_) => "internal",
        }
    }

    pub(crate) fn installed(&self) -> Option<&[&'static str]> {
        match self {
            Self::UnknownLanguage { installed, .. } | Self::NotInstalled { installed, .. } => {
                Some(installed)
            }
            _ => None,
        }
    }
}

/// Runs programs as the sandbox's user, a few at a time.
pub(crate) struct Runner {
    files: PathBuf,
    user: String,
    places: Rc<Semaphore>,
}

impl Runner {
    pub(crate) fn new(options: &Options) -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            files: options.files.clone(),
            user: options.user.clone(),
            places: Rc::new(Semaphore::new(cores.max(2))),
        }
    }

    /// Names of the languages that can run here.
    pub(crate) fn installed(&self) -> Vec<&'static str> {
        let account = Account::find(&self.user);
        let tools = Tools::new(&self.files, &account);
        catalogue::installed(&tools)
    }

    /// Waits for a place, compiles and runs. Dropping the future ends everything.
    pub(crate) async fn run(
        &self,
        program: &Program,
        globals: &Variables,
    ) -> Result<Report, Error> {
        let account = Account::find(&self.user);
        let tools = Tools::new(&self.files, &account);
        let (language, toolchain) = choose(&program.language, &tools)?;
        let limits = Limits::of(program)?;
        let _place = self.places.acquire().await;

        let source = source::name(language, &program.code);
        let workspace = Workspace::create(&account).map_err(Error::Workspace)?;
        workspace
            .write(&source.file, &program.code)
            .map_err(Error::Workspace)?;
        for (name, text) in &program.files {
            workspace
                .write(name, text)
                .map_err(|e| Error::Invalid(format!("the file {name:?} cannot be written: {e}")))?;
        }
        let fill = |words: &[&str]| -> Vec<String> {
            words
                .iter()
                .map(|word| {
                    word.replace("{source}", &source.file)
                        .replace("{main}", &source.main)
                        .replace("{files}", &self.files.to_string_lossy())
                })
                .collect()
        };
        let job = |command: Vec<String>, cwd: &Path, time: Duration| Job {
            command,
            cwd: cwd.to_owned(),
            env: tools.environment(&account, globals, &program.env),
            account: account.clone(),
            stdin: String::new(),
            time,
            output: limits.output,
        };

        let mut report = Report {
            language: language.name,
            toolchain: toolchain.name,
            compile: None,
            run: None,
        };
        if let Some(compile) = toolchain.compile {
            let step = job(fill(compile), workspace.path(), limits.compile)
                .run()
                .await
                .map_err(Error::Start)?;
            let failed = step.exit_code != Some(0);
            report.compile = Some(step);
            if failed {
                return Ok(report);
            }
        }
        let mut command = fill(toolchain.run);
        // Found from wherever it runs.
        for word in &mut command {
            if *word == source.file || word.starts_with("./") {
                *word = workspace.path().join(&*word).to_string_lossy().into_owned();
            }
        }
        command.extend(program.args.iter().cloned());
        let cwd = program.cwd.as_deref().unwrap_or(workspace.path());
        let mut run = job(command, cwd, limits.run);
        run.stdin.clone_from(&program.stdin);
        report.run = Some(run.run().await.map_err(Error::Start)?);
        Ok(report)
    }
}

struct Limits {
    run: Duration,
    compile: Duration,
    output: usize,
}

impl Limits {
    fn of(program: &Program) -> Result<Self, Error> {
        let time = |asked: Option<u64>, usual, name| match asked.unwrap_or(usual) {
            millis @ 1..=MAX_TIME => Ok(Duration::from_millis(millis)),
            other => Err(Error::Invalid(format!(
                "{name} must be between 1 and {MAX_TIME}, not {other}"
            ))),
        };
        if program.args.iter().any(|argument| argument.contains('\0')) {
            return Err(Error::Invalid("an argument contains a NUL byte".to_owned()));
        }
        Ok(Self {
            run: time(program.timeout_ms, RUN_TIME, "timeout_ms")?,
            compile: time(
                program.compile_timeout_ms,
                COMPILE_TIME,
                "compile_timeout_ms",
            )?,
            output: program.output_limit.unwrap_or(OUTPUT).min(MAX_OUTPUT),
        })
    }
}

fn choose(asked: &str, tools: &Tools) -> Result<(&'static Language, &'static Toolchain), Error> {
    let Some(language) = catalogue::find(asked) else {
        return Err(Error::UnknownLanguage {
            language: asked.to_owned(),
            installed: catalogue::installed(tools),
        });
    };
    match language.toolchain(tools) {
        Some(toolchain) => Ok((language, toolchain)),
        None => Err(Error::NotInstalled {
            language: language.name,
            wanted: language.wanted(),
            installed: catalogue::installed(tools),
        }),
    }
}
