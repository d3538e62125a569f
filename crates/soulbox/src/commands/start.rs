//! Starting a process, with the exit codes that shells use when it cannot be.

use std::time::{Duration, Instant};

use anyhow::Result;
use soulbox_client::{
    Envd, Error,
    envd::process::{Command, ProcessStream, PtySize},
};

use crate::{args::CommandArgs, context::Server, report, terminal};

const TIMED_OUT: u8 = 124;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// What only shells understand.
const SHELL_CHARACTERS: &str = "|&;<>()$`*?~";
/// Words that stand alone between the commands of a line.
const OPERATORS: [&str; 8] = ["|", "||", "&&", ";", ">", ">>", "<", "&"];
/// Commands that are no programs.
const BUILT_IN: [&str; 12] = [
    "alias", "cd", "eval", "exec", "exit", "export", "set", "shopt", "source", "ulimit", "umask",
    "unset",
];

pub(super) enum Started {
    Running(ProcessStream),
    /// It could not be executed, and the user has seen why.
    Refused(u8),
}

pub(super) fn command(args: &CommandArgs, limit: Option<u32>) -> Command {
    let (program, arguments) = args.argv();
    Command {
        program,
        arguments,
        directory: args.workdir.clone(),
        limit: limit.map(|seconds| Duration::from_secs(seconds.into())),
        ..Command::default()
    }
}

/// On a terminal, if one is asked for: of the size of ours, and called as ours is.
pub(super) fn on_terminal(command: &mut Command, args: &CommandArgs) -> Result<Option<PtySize>> {
    if !args.tty {
        return Ok(None);
    }
    if !terminal::is_interactive() {
        let hint = "leave -t (--tty) out when input or output is piped; -i alone passes input on";
        return Err(report::advice("--tty needs a terminal", hint));
    }
    let size = terminal::size();
    command.pty = Some(size);
    command
        .environment
        .entry("TERM".to_owned())
        .or_insert_with(terminal::kind);
    Ok(Some(size))
}

/// Without a word about what cannot be executed.
pub(super) async fn try_start(envd: &Envd, command: &Command) -> Result<Started> {
    match envd.start(command).await {
        Ok(process) => Ok(Started::Running(process)),
        Err(error) => match refusal(&error) {
            Some(code) => Ok(Started::Refused(code)),
            None => Err(error.into()),
        },
    }
}

pub(super) async fn start(server: &Server, envd: &Envd, command: &Command) -> Result<Started> {
    match envd.start(command).await {
        Ok(process) => Ok(Started::Running(process)),
        Err(error) => match refusal(&error) {
            Some(NOT_FOUND) => {
                let program = &command.program;
                let message = format!("{program}: no such command in the sandbox");
                let hint = match shell_hint(command) {
                    None if command.pty.is_some() => template_hint(server, program).await,
                    hint => hint,
                };
                match hint {
                    Some(hint) => report::print(&report::advice(message, hint)),
                    None => report::complaint(&message),
                }
                Ok(Started::Refused(NOT_FOUND))
            }
            Some(code) => {
                report::print(&error.into());
                Ok(Started::Refused(code))
            }
            None => Err(error.into()),
        },
    }
}

/// A program that failed may have got words that were meant for a shell.
pub(super) fn hint_after(code: u8, command: &Command) {
    let is_operator = |word: &&String| OPERATORS.contains(&word.as_str());
    let started = !matches!(code, NOT_EXECUTABLE | NOT_FOUND);
    if code == 0 || !started || command.program.ends_with("sh") {
        return;
    }
    if let Some(word) = command.arguments.iter().find(is_operator) {
        report::hint(&format!(
            "{} got {word} as an argument: {}",
            command.program,
            shell_line(command)
        ));
    }
}

/// For whoever wrote `run -t NAME` when -t chose the template.
pub(super) async fn template_hint(server: &Server, word: &str) -> Option<String> {
    let meant = server.is_template(word).await;
    meant.then(|| {
        format!("-t is --tty, as in Docker; the template is chosen with --template {word}")
    })
}

/// For whoever wrote a line for a shell where a program and its arguments are meant.
fn shell_hint(command: &Command) -> Option<String> {
    let program = command.program.as_str();
    let is_line = program.contains(|c: char| c.is_whitespace() || SHELL_CHARACTERS.contains(c))
        || command
            .arguments
            .iter()
            .any(|word| OPERATORS.contains(&word.as_str()));
    let is_assignment = program.contains('=') && !program.starts_with(['=', '/', '.']);
    if !is_line && !is_assignment && !BUILT_IN.contains(&program) {
        return None;
    }
    Some(shell_line(command))
}

fn shell_line(command: &Command) -> String {
    let words = std::iter::once(&command.program).chain(&command.arguments);
    let words: Vec<&str> = words.map(String::as_str).collect();
    let line = words.join(" ").replace('\'', r"'\''");
    format!("there is no shell in between; a line for one is written as: --shell '{line}'")
}

/// envd marks a failed execution only by the text of its error.
fn refusal(error: &Error) -> Option<u8> {
    let Error::Rpc(rpc) = error else { return None };
    let message = rpc.message.to_lowercase();
    if !message.contains("starting process") {
        return None;
    }
    let missing = ["no such file", "not found"]
        .iter()
        .any(|words| message.contains(words));
    Some(if missing { NOT_FOUND } else { NOT_EXECUTABLE })
}

/// A command that reached its time limit has a code of its own. Either envd ended it, or the
/// sandbox went first, which has the same limit.
pub(super) fn timed_out(result: Result<u8>, limit: Option<u32>, started: Instant) -> Result<u8> {
    let (Some(limit), Err(error)) = (limit, &result) else {
        return result;
    };
    let nearly = Duration::from_secs(u64::from(limit.saturating_sub(1)));
    let late = match error.downcast_ref::<Error>() {
        Some(Error::Rpc(rpc)) => rpc.code == "deadline_exceeded",
        Some(Error::Cut { .. } | Error::SandboxGone { .. }) => started.elapsed() >= nearly,
        _ => false,
    };
    if !late {
        return result;
    }
    report::complaint(&format!("the command did not end within {limit} s"));
    Ok(TIMED_OUT)
}

#[cfg(test)]
mod tests {
    use soulbox_client::RpcError;

    use super::*;

    fn rpc(message: &str) -> Error {
        Error::Rpc(RpcError {
            code: "invalid_argument".to_owned(),
            message: message.to_owned(),
        })
    }

    #[test]
    fn what_cannot_be_executed_gets_the_shells_codes() {
        let cases = [
            (
                "error starting process 'x': No such file or directory (os error 2)",
                Some(127),
            ),
            (
                "error starting process: exec: \"x\": executable file not found in $PATH",
                Some(127),
            ),
            (
                "error starting process '/etc': Permission denied (os error 13)",
                Some(126),
            ),
            ("cwd '/x' does not exist", None),
        ];
        for (message, code) in cases {
            assert_eq!(refusal(&rpc(message)), code, "{message}");
        }
    }

    #[test]
    fn a_line_for_a_shell_is_told_how_to_write_it() {
        let command = |words: &[&str]| Command {
            program: words[0].to_owned(),
            arguments: words[1..].iter().map(|&word| word.to_owned()).collect(),
            ..Command::default()
        };
        for (words, line) in [
            (&["echo a | wc -c"][..], "--shell 'echo a | wc -c'"),
            (&["ls -l"], "--shell 'ls -l'"),
            (&["cd", "/tmp", "&&", "ls"], "--shell 'cd /tmp && ls'"),
            (&["A=1", "env"], "--shell 'A=1 env'"),
            (&["true;false"], "--shell 'true;false'"),
            (&["echo 'a b'"], r"--shell 'echo '\''a b'\'''"),
        ] {
            let hint = shell_hint(&command(words)).unwrap();
            assert!(hint.ends_with(line), "{hint}");
        }
        for words in [&["pyhton3", "a b"][..], &["/usr/bin/nope"], &["./x=1"]] {
            assert_eq!(shell_hint(&command(words)), None, "{words:?}");
        }
    }

    #[test]
    fn a_missed_deadline_is_124_only_where_there_was_one() {
        let now = Instant::now();
        let late = || {
            let code = "deadline_exceeded".to_owned();
            Err(Error::Rpc(RpcError {
                code,
                message: String::new(),
            })
            .into())
        };
        assert_eq!(timed_out(late(), Some(1), now).unwrap(), 124);
        assert!(timed_out(late(), None, now).is_err());
        assert_eq!(timed_out(Ok(3), Some(1), now).unwrap(), 3);
    }

    #[test]
    fn a_sandbox_that_ends_early_is_no_timeout() {
        let cut = || {
            Err(Error::Cut {
                id: "i1".to_owned(),
            }
            .into())
        };
        assert!(timed_out(cut(), Some(60), Instant::now()).is_err());
        assert_eq!(timed_out(cut(), Some(1), Instant::now()).unwrap(), 124);
    }
}
