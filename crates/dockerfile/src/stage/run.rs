//! RUN.

use std::fmt::Write as _;

use super::Draft;
use crate::{
    Error, Result, StepKind,
    read::Context,
    source::{Heredoc, Instruction},
    words::{self, Flag},
};

/// Docker hands these on to RUN without an ARG.
const PROXIES: [&str; 10] = [
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "FTP_PROXY",
    "ftp_proxy",
    "NO_PROXY",
    "no_proxy",
    "ALL_PROXY",
    "all_proxy",
];

impl Draft {
    pub(super) fn run(
        &mut self,
        instruction: &Instruction,
        context: &mut Context<'_>,
    ) -> Result<()> {
        let line = instruction.line;
        let (flags, rest) = words::flags(&instruction.rest);
        for flag in &flags {
            check_flag(flag, line, context)?;
        }
        if rest.is_empty() {
            return Err(Error::new(line, "RUN needs a command"));
        }
        let command = match words::json_array(rest) {
            Some(words) if words.is_empty() => {
                return Err(Error::new(line, "RUN needs a command"));
            }
            Some(words) => words::join(&words),
            None => {
                if words::looks_like_array(rest) {
                    context.warn(line, "this is no JSON array, so it is run by the shell");
                }
                self.shell_line(&with_heredocs(rest, &instruction.heredocs))
            }
        };
        let command = format!("{}{command}", self.exports(context));
        self.push(line, StepKind::Run, vec![command]);
        Ok(())
    }

    /// ARGs are variables of RUN and of nothing afterwards. The image's own variables win.
    fn exports(&self, context: &mut Context<'_>) -> String {
        let mut visible: Vec<(String, String)> = self
            .scope
            .args
            .iter()
            .filter(|(name, _)| !self.scope.env.contains_key(*name))
            .filter_map(|(name, value)| Some((name.clone(), value.clone()?)))
            .collect();
        for name in PROXIES {
            if let Some(value) = context.build_arg(name)
                && !self.scope.env.contains_key(name)
                && !self.scope.args.contains_key(name)
            {
                visible.push((name.to_owned(), value));
            }
        }
        let mut exports = String::new();
        for (name, value) in visible {
            let quoted = words::quote(&value);
            // Writing to a String cannot fail.
            if quoted == value {
                write!(exports, "export {name}=\"${{{name}-{value}}}\"; ").ok();
            } else {
                write!(
                    exports,
                    "[ -n \"${{{name}+x}}\" ] || export {name}={quoted}; "
                )
                .ok();
            }
        }
        exports
    }
}

fn check_flag(flag: &Flag, line: u32, context: &mut Context<'_>) -> Result<()> {
    let value = flag.value.as_deref().unwrap_or_default();
    match (flag.name.as_str(), value) {
        ("network", "default") | ("security", "sandbox") => Ok(()),
        ("mount", mount) => {
            let kind = mount
                .split(',')
                .find_map(|option| option.strip_prefix("type="))
                .unwrap_or("bind");
            if kind == "cache" {
                context.warn(
                    line,
                    "the cache mount is left out: each step starts from what the steps before it \
                     left",
                );
                return Ok(());
            }
            let way_out = match kind {
                "bind" => "COPY the files in front of it",
                "secret" => "hand secrets to the sandbox, not to its template",
                "ssh" => "COPY what it would fetch",
                _ => "write without it",
            };
            let reason = format!("RUN --mount=type={kind} is not supported: {way_out}");
            Err(Error::new(line, reason))
        }
        (name, value) => {
            let reason = format!("RUN --{name}={value} is not supported");
            Err(Error::new(line, reason))
        }
    }
}

/// The command with its documents, as one script.
fn with_heredocs(rest: &str, heredocs: &[Heredoc]) -> String {
    let [only] = heredocs else {
        return script(rest, heredocs);
    };
    let is_alone = rest.starts_with("<<") && rest.split_whitespace().count() == 1;
    if !is_alone {
        return script(rest, heredocs);
    }
    let content = only.content();
    if !content.starts_with("#!") {
        return content;
    }
    // A script for another interpreter: the kernel runs it, as Docker has it.
    let end = delimiter(&content);
    format!(
        "script=$(mktemp) && cat > \"$script\" <<'{end}'\n{content}{end}\n\
         chmod 755 \"$script\" && \"$script\"; status=$?; rm -f \"$script\"; exit $status"
    )
}

fn script(rest: &str, heredocs: &[Heredoc]) -> String {
    let mut text = rest.to_owned();
    for heredoc in heredocs {
        // Writing to a String cannot fail.
        write!(text, "\n{}{}", heredoc.body, heredoc.name).ok();
    }
    text
}

/// A word that is no line of the content.
fn delimiter(content: &str) -> String {
    let mut word = "SCRIPT".to_owned();
    while content.lines().any(|line| line == word) {
        word.push('_');
    }
    word
}
