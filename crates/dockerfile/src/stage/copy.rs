//! COPY and ADD.

use super::Draft;
use crate::{
    Copy, CopyFrom, Error, Inline, Result, Step, StepKind, expand,
    read::Context,
    source::{Instruction, is_heredoc},
    words::{self, Flag},
};

const ARCHIVES: [&str; 10] = [
    ".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2", ".tbz2", ".tbz", ".tar.zst", ".tzst",
];

#[derive(Debug, Default)]
struct Settings {
    owner: Option<String>,
    mode: Option<String>,
    from: Option<String>,
}

impl Draft {
    pub(super) fn copy(
        &mut self,
        instruction: &Instruction,
        context: &mut Context<'_>,
    ) -> Result<()> {
        let line = instruction.line;
        let is_add = instruction.keyword == "ADD";
        let (flags, rest) = words::flags(&instruction.rest);
        let settings = self.settings(&flags, instruction, context)?;
        let raw = words::json_array(rest).unwrap_or_else(|| words::split(rest, context.escape));
        let is_array = words::json_array(rest).is_some();
        let Some((destination, sources)) = raw.split_last().filter(|(_, from)| !from.is_empty())
        else {
            let reason = format!("{} needs a source and a destination", instruction.keyword);
            return Err(Error::new(line, reason));
        };
        let destination = self.later(destination, line, context)?.for_build();
        if destination.is_empty() {
            return Err(Error::new(line, "the destination comes to nothing"));
        }
        if sources.len() > 1 && !destination.ends_with('/') && !is_folder_name(&destination) {
            let reason = format!("several sources need a folder to go to: write {destination}/");
            return Err(Error::new(line, reason));
        }
        let mut patterns = Vec::new();
        for source in sources {
            if !is_array && is_heredoc(source) {
                continue;
            }
            patterns.push(self.word(source, line, context)?);
        }
        // Docker gives files to root, whatever USER says.
        let owner = settings.owner.unwrap_or_else(|| "root".to_owned());
        let mode = settings.mode.unwrap_or_default();
        let args = |source: &str| {
            vec![
                source.to_owned(),
                destination.clone(),
                owner.clone(),
                mode.clone(),
            ]
        };
        if let Some(from) = settings.from {
            if !instruction.heredocs.is_empty() {
                let reason = "a heredoc cannot come from another stage";
                return Err(Error::new(line, reason));
            }
            let from = copy_from(&from, line, context)?;
            for pattern in &patterns {
                self.steps.push(Step {
                    line,
                    kind: StepKind::Copy,
                    args: args(&format!("/{}", below_root(pattern, line)?)),
                    copy: Some(Copy::From(from.clone())),
                });
            }
            return Ok(());
        }
        let sources = patterns
            .iter()
            .map(|pattern| context_source(pattern, is_add, line))
            .collect::<Result<_>>()?;
        let inline = self.inline(instruction, context)?;
        self.steps.push(Step {
            line,
            kind: StepKind::Copy,
            args: args(""),
            copy: Some(Copy::Context {
                sources,
                inline,
                add: is_add,
            }),
        });
        Ok(())
    }

    fn settings(
        &self,
        flags: &[Flag],
        instruction: &Instruction,
        context: &Context<'_>,
    ) -> Result<Settings> {
        let (line, keyword) = (instruction.line, &instruction.keyword);
        let mut settings = Settings::default();
        for flag in flags {
            let value = flag.value.as_deref().unwrap_or_default();
            match (flag.name.as_str(), keyword.as_str()) {
                ("chown", _) => {
                    settings.owner = Some(self.later(value, line, context)?.for_build());
                }
                ("chmod", _) => {
                    let mode = self.word(value, line, context)?;
                    check_mode(&mode, line)?;
                    settings.mode = Some(mode);
                }
                ("from", "COPY") => settings.from = Some(self.word(value, line, context)?),
                // How layers are put together is up to us.
                ("link", _) => {}
                (name, keyword) => {
                    let reason = format!("{keyword} --{name} is not supported");
                    return Err(Error::new(line, reason));
                }
            }
        }
        Ok(settings)
    }

    fn inline(&self, instruction: &Instruction, context: &Context<'_>) -> Result<Vec<Inline>> {
        instruction
            .heredocs
            .iter()
            .map(|heredoc| {
                if heredoc.name.contains('/') || heredoc.name.starts_with('.') {
                    let reason = format!("{:?} cannot be the name of a file", heredoc.name);
                    return Err(Error::new(instruction.line, reason));
                }
                let mut content = heredoc.content();
                if heredoc.expands {
                    content = expand::document(&content, context.escape, &self.scope)
                        .map_err(|reason| Error::new(instruction.line, reason))?;
                }
                Ok(Inline {
                    name: heredoc.name.clone(),
                    content,
                })
            })
            .collect()
    }
}

fn is_folder_name(destination: &str) -> bool {
    matches!(destination.rsplit('/').next(), Some("." | ".."))
}

fn check_mode(mode: &str, line: u32) -> Result<()> {
    let octal =
        (3..=4).contains(&mode.len()) && mode.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    if octal {
        Ok(())
    } else {
        let reason = format!("the mode {mode:?} is not octal, such as 755");
        Err(Error::new(line, reason))
    }
}

fn copy_from(name: &str, line: u32, context: &Context<'_>) -> Result<CopyFrom> {
    if let Some(number) = context.stage_named(name) {
        return Ok(CopyFrom::Stage(number));
    }
    if let Ok(number) = name.parse::<usize>() {
        if number < context.stages.len() {
            return Ok(CopyFrom::Stage(number));
        }
        let reason = format!("there is no stage {number} above this one");
        return Err(Error::new(line, reason));
    }
    if context.is_later_stage(name) {
        let reason = format!("the stage {name} is not above this one");
        return Err(Error::new(line, reason));
    }
    if name.is_empty() || name.eq_ignore_ascii_case("scratch") {
        return Err(Error::new(line, "--from needs a stage or an image"));
    }
    Ok(CopyFrom::Image(name.to_owned()))
}

fn context_source(pattern: &str, is_add: bool, line: u32) -> Result<String> {
    if is_add {
        let lower = pattern.to_ascii_lowercase();
        if lower.starts_with("http://") || lower.starts_with("https://") {
            let reason = "ADD of a URL is not supported: use RUN curl -fsSL URL -o FILE";
            return Err(Error::new(line, reason));
        }
        if lower.starts_with("git@") || lower.starts_with("git://") || lower.starts_with("ssh://") {
            let reason = "ADD of a repository is not supported: use RUN git clone URL FOLDER";
            return Err(Error::new(line, reason));
        }
        if ARCHIVES.iter().any(|ending| lower.ends_with(ending)) {
            let reason = "ADD would unpack the archive, which is not supported: use COPY and RUN \
                          tar -xf FILE";
            return Err(Error::new(line, reason));
        }
    }
    let source = below_root(pattern, line)?;
    Ok(if source.is_empty() {
        ".".to_owned()
    } else {
        source
    })
}

/// The path without what leads up or to the root, as Docker reads sources.
fn below_root(pattern: &str, line: u32) -> Result<String> {
    if pattern.is_empty() {
        return Err(Error::new(line, "a source comes to nothing"));
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in pattern.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    Ok(parts.join("/"))
}
