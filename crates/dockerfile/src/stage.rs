//! One stage while it is read.

use crate::{
    Base, Copy, CopyFrom, Error, Result, Stage, Step, StepKind,
    expand::{self, Text, When},
    read::Context,
    scope::Scope,
    source::Instruction,
    words,
};

mod base;
mod copy;
mod run;
mod start;
mod variables;

pub(crate) use base::{from, names};
pub(crate) use start::Start;
pub(crate) use variables::global_arg;

#[derive(Debug, Clone)]
pub(crate) struct Draft {
    name: Option<String>,
    line: u32,
    base: Base,
    steps: Vec<Step>,
    scope: Scope,
    /// Of SHELL, when it is not the usual one.
    shell: Option<Vec<String>>,
    start: start::Commands,
    sets_user: bool,
    sets_workdir: bool,
}

pub(crate) fn is_known(keyword: &str) -> bool {
    matches!(
        keyword,
        "FROM"
            | "RUN"
            | "COPY"
            | "ADD"
            | "ENV"
            | "ARG"
            | "WORKDIR"
            | "USER"
            | "CMD"
            | "ENTRYPOINT"
            | "HEALTHCHECK"
            | "SHELL"
            | "EXPOSE"
            | "VOLUME"
            | "LABEL"
            | "MAINTAINER"
            | "STOPSIGNAL"
            | "ONBUILD"
    )
}

pub(crate) fn unknown(keyword: &str) -> String {
    format!("{keyword} is no instruction of a Dockerfile")
}

impl Draft {
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.name
            .as_ref()
            .is_some_and(|own| own.eq_ignore_ascii_case(name))
    }

    pub(crate) fn apply(
        &mut self,
        instruction: &Instruction,
        context: &mut Context<'_>,
    ) -> Result<()> {
        let line = instruction.line;
        if instruction.rest.is_empty() && is_known(&instruction.keyword) {
            let keyword = &instruction.keyword;
            return Err(Error::new(line, format!("{keyword} needs an argument")));
        }
        match instruction.keyword.as_str() {
            "RUN" => self.run(instruction, context),
            "COPY" | "ADD" => self.copy(instruction, context),
            "ENV" => self.env(instruction, context),
            "ARG" => self.arg(instruction, context),
            "WORKDIR" => {
                let folder = self.later(&instruction.rest, line, context)?.for_build();
                self.sets_workdir = true;
                self.push(line, StepKind::Workdir, vec![folder]);
                Ok(())
            }
            "USER" => self.user(instruction, context),
            "CMD" | "ENTRYPOINT" | "HEALTHCHECK" => self.start.set(instruction, context),
            "SHELL" => self.set_shell(instruction),
            // They describe the image, and a template has no place for them: ports are reachable
            // and folders writable anyway.
            "EXPOSE" | "VOLUME" | "LABEL" | "MAINTAINER" | "STOPSIGNAL" => Ok(()),
            "ONBUILD" => Err(Error::new(
                line,
                "ONBUILD is not supported: write the instruction into the file that builds on this \
                 one",
            )),
            other => Err(Error::new(line, unknown(other))),
        }
    }

    fn user(&mut self, instruction: &Instruction, context: &mut Context<'_>) -> Result<()> {
        let line = instruction.line;
        let user = self.later(&instruction.rest, line, context)?;
        let known = user.known();
        let name = match known.as_ref().and_then(|user| user.split_once(':')) {
            Some((name, group)) => {
                context.warn(
                    line,
                    format!("the group {group} is left out: the user's own groups count"),
                );
                name.to_owned()
            }
            None => user.for_build(),
        };
        if name.is_empty() {
            return Err(Error::new(line, "USER needs a name"));
        }
        self.sets_user = true;
        self.push(line, StepKind::User, vec![name]);
        Ok(())
    }

    fn set_shell(&mut self, instruction: &Instruction) -> Result<()> {
        let words = words::json_array(&instruction.rest)
            .filter(|words| !words.is_empty())
            .ok_or_else(|| {
                let reason = "SHELL needs a JSON array such as [\"/bin/bash\", \"-c\"]";
                Error::new(instruction.line, reason)
            })?;
        self.shell = Some(words);
        Ok(())
    }

    /// A line of RUN, CMD or ENTRYPOINT, for the build's own shell.
    fn shell_line(&self, line: &str) -> String {
        in_shell(self.shell.as_deref(), line)
    }

    fn push(&mut self, line: u32, kind: StepKind, args: Vec<String>) {
        self.steps.push(Step {
            line,
            kind,
            args,
            copy: None,
        });
    }

    /// A word whose value is needed now.
    fn word(&self, text: &str, line: u32, context: &Context<'_>) -> Result<String> {
        expand::word(text, context.escape, &self.scope, When::Now)
            .map(|text| text.known().unwrap_or_default())
            .map_err(|reason| Error::new(line, reason))
    }

    /// A word that the build may still put variables of the image into.
    fn later(&self, text: &str, line: u32, context: &Context<'_>) -> Result<Text> {
        expand::word(text, context.escape, &self.scope, When::Build)
            .map_err(|reason| Error::new(line, reason))
    }

    /// Numbers of the stages that this one is based on or copies from.
    pub(crate) fn needs(&self) -> Vec<usize> {
        let base = match self.base {
            Base::Stage(number) => Some(number),
            _ => None,
        };
        let copies = self.steps.iter().filter_map(|step| match step.copy {
            Some(Copy::From(CopyFrom::Stage(number))) => Some(number),
            _ => None,
        });
        base.into_iter().chain(copies).collect()
    }

    pub(crate) fn start(&self) -> Start {
        self.start.outcome(self.shell.as_deref())
    }

    /// The last stage becomes the template: where the file leaves it open, it runs as E2B's do.
    pub(crate) fn into_stage(mut self, is_last: bool) -> Stage {
        let line = self.steps.last().map_or(self.line, |step| step.line);
        if is_last && !self.sets_user {
            self.push(line, StepKind::User, vec!["user".to_owned()]);
        }
        if is_last && !self.sets_workdir {
            self.push(line, StepKind::Workdir, vec!["/home/user".to_owned()]);
        }
        Stage {
            name: self.name,
            line: self.line,
            base: self.base,
            steps: self.steps,
        }
    }
}

fn in_shell(shell: Option<&[String]>, line: &str) -> String {
    match shell {
        Some(shell) => format!("{} {}", words::join(shell), words::quote(line)),
        None => line.to_owned(),
    }
}
