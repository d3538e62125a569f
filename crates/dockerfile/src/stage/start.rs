//! CMD, ENTRYPOINT and HEALTHCHECK: what runs in a sandbox, and how to check that it does.

use super::in_shell;
use crate::{Error, Result, read::Context, source::Instruction, words};

/// E2B's wait for a start command without a readiness check.
const USUAL_READY: &str = "sleep 20";

#[derive(Debug, Clone, PartialEq, Eq)]
enum Command {
    Exec(Vec<String>),
    Shell(String),
}

#[derive(Debug, Clone, Default)]
pub(super) struct Commands {
    entrypoint: Option<(u32, Command)>,
    cmd: Option<(u32, Command)>,
    /// CMD is that of the stage below: an ENTRYPOINT of this one does not want it.
    cmd_is_inherited: bool,
    health: Option<Command>,
}

/// What the last stage runs.
#[derive(Debug, Default)]
pub(crate) struct Start {
    pub command: Option<String>,
    pub ready: Option<String>,
    pub line: Option<u32>,
}

impl Commands {
    pub(super) fn becomes_inherited(&mut self) {
        self.cmd_is_inherited = true;
    }

    pub(super) fn set(
        &mut self,
        instruction: &Instruction,
        context: &mut Context<'_>,
    ) -> Result<()> {
        let line = instruction.line;
        match instruction.keyword.as_str() {
            "CMD" => {
                self.cmd = command(&instruction.rest, line, context).map(|cmd| (line, cmd));
                self.cmd_is_inherited = false;
            }
            "ENTRYPOINT" => {
                self.entrypoint = command(&instruction.rest, line, context).map(|cmd| (line, cmd));
                if self.cmd_is_inherited {
                    self.cmd = None;
                }
            }
            _ => self.health = health(instruction, context)?,
        }
        Ok(())
    }

    pub(super) fn outcome(&self, shell: Option<&[String]>) -> Start {
        let line = |command: &Command| match command {
            Command::Exec(words) => words::join(words),
            Command::Shell(line) => in_shell(shell, line),
        };
        let (command, at) = match (&self.entrypoint, &self.cmd) {
            (None, None) => return Start::default(),
            (None, Some((at, cmd))) => (line(cmd), *at),
            // A shell line as ENTRYPOINT takes no arguments.
            (Some((at, entrypoint @ Command::Shell(_))), _) | (Some((at, entrypoint)), None) => {
                (line(entrypoint), *at)
            }
            (Some((at, Command::Exec(words))), Some((_, cmd))) => {
                let arguments = match cmd {
                    Command::Exec(arguments) => arguments.clone(),
                    Command::Shell(line) => {
                        let usual = ["/bin/sh".to_owned(), "-c".to_owned()];
                        let mut words = shell.unwrap_or(&usual).to_vec();
                        words.push(line.clone());
                        words
                    }
                };
                (words::join(&[words.clone(), arguments].concat()), *at)
            }
        };
        Start {
            command: Some(command),
            ready: Some(
                self.health
                    .as_ref()
                    .map_or_else(|| USUAL_READY.to_owned(), line),
            ),
            line: Some(at),
        }
    }
}

/// `None`: an empty array, which takes back what was set.
fn command(text: &str, line: u32, context: &mut Context<'_>) -> Option<Command> {
    match words::json_array(text) {
        Some(words) if words.is_empty() => None,
        Some(words) => Some(Command::Exec(words)),
        None => {
            if words::looks_like_array(text) {
                context.warn(line, "this is no JSON array, so it is run by the shell");
            }
            Some(Command::Shell(text.to_owned()))
        }
    }
}

fn health(instruction: &Instruction, context: &mut Context<'_>) -> Result<Option<Command>> {
    let line = instruction.line;
    let (flags, rest) = words::flags(&instruction.rest);
    for flag in &flags {
        if !matches!(
            flag.name.as_str(),
            "interval" | "timeout" | "start-period" | "start-interval" | "retries"
        ) {
            let reason = format!("HEALTHCHECK --{} is not known", flag.name);
            return Err(Error::new(line, reason));
        }
    }
    let (kind, text) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    if kind.eq_ignore_ascii_case("NONE") {
        return Ok(None);
    }
    if !kind.eq_ignore_ascii_case("CMD") || text.trim().is_empty() {
        let reason = "HEALTHCHECK is written as HEALTHCHECK CMD command or HEALTHCHECK NONE";
        return Err(Error::new(line, reason));
    }
    Ok(command(text.trim(), line, context))
}
