//! FROM.

use super::{Draft, start::Commands};
use crate::{
    Base, Error, Result, Step, StepKind,
    expand::{self, When},
    read::Context,
    scope::Scope,
    source::Instruction,
    words,
};

const TEMPLATE_SCHEME: &str = "template://";

/// The names of all stages of a file.
pub(crate) fn names(instructions: &[Instruction]) -> Vec<String> {
    let froms = instructions.iter().filter(|one| one.keyword == "FROM");
    froms
        .filter_map(|from| {
            let words: Vec<&str> = words::flags(&from.rest).1.split_whitespace().collect();
            match words.as_slice() {
                [_, as_, name] if as_.eq_ignore_ascii_case("as") => Some((*name).to_owned()),
                _ => None,
            }
        })
        .collect()
}

pub(crate) fn from(instruction: &Instruction, context: &mut Context<'_>) -> Result<Draft> {
    let line = instruction.line;
    let (flags, rest) = words::flags(&instruction.rest);
    for flag in &flags {
        match (flag.name.as_str(), &flag.value) {
            ("platform", Some(platform)) => check_platform(platform, line, context)?,
            (name, _) => return Err(Error::new(line, format!("FROM --{name} is not supported"))),
        }
    }
    let words = words::split(rest, context.escape);
    let (base, name) = match words.as_slice() {
        [base] => (base, None),
        [base, as_, name] if as_.eq_ignore_ascii_case("as") => (base, Some(name.clone())),
        _ => {
            let reason = "FROM is written as FROM IMAGE or FROM IMAGE AS NAME";
            return Err(Error::new(line, reason));
        }
    };
    if let Some(name) = &name {
        check_name(name, line, context)?;
    }
    let text = expanded(base, line, context)?;
    if text.is_empty() {
        let reason = format!(
            "{base} comes to nothing: declare the variable with a value, as ARG NAME=VALUE, above \
             the first FROM"
        );
        return Err(Error::new(line, reason));
    }
    if text.eq_ignore_ascii_case("scratch") {
        let reason = "FROM scratch has no shell and no users to run anything with; start from an \
                      image with a system in it, such as debian:12-slim";
        return Err(Error::new(line, reason));
    }
    if let Some(number) = context.stage_named(&text) {
        let mut draft = context.stages[number].clone();
        draft.name = name;
        draft.line = line;
        draft.base = Base::Stage(number);
        draft.steps.clear();
        draft.start.becomes_inherited();
        return Ok(draft);
    }
    if context.is_later_stage(&text) && name.as_ref() != Some(&text) {
        let reason = format!("the stage {text} comes later in the file");
        return Err(Error::new(line, reason));
    }
    let base = match text.strip_prefix(TEMPLATE_SCHEME) {
        Some("") => return Err(Error::new(line, "the template's name is missing")),
        Some(template) => Base::Template(template.to_owned()),
        None => Base::Image(text),
    };
    Ok(fresh(name, line, base))
}

/// E2B's start of a stage, whatever user and folder the image names. A template keeps its own.
fn fresh(name: Option<String>, line: u32, base: Base) -> Draft {
    let is_image = matches!(base, Base::Image(_));
    let mut steps = Vec::new();
    if is_image {
        for (kind, value) in [(StepKind::User, "root"), (StepKind::Workdir, "/")] {
            steps.push(Step {
                line,
                kind,
                args: vec![value.to_owned()],
                copy: None,
            });
        }
    }
    Draft {
        name,
        line,
        base,
        steps,
        scope: Scope::default(),
        shell: None,
        start: Commands::default(),
        sets_user: !is_image,
        sets_workdir: !is_image,
    }
}

fn expanded(text: &str, line: u32, context: &Context<'_>) -> Result<String> {
    expand::word(text, context.escape, &context.globals, When::Now)
        .map(|text| text.known().unwrap_or_default())
        .map_err(|reason| Error::new(line, reason))
}

fn check_platform(platform: &str, line: u32, context: &Context<'_>) -> Result<()> {
    let platform = expanded(platform, line, context)?;
    let own = format!("linux/{}", context.options.architecture);
    // Variants such as arm64/v8 are what the one architecture means here.
    if platform == own || platform.starts_with(&format!("{own}/")) || platform == "linux" {
        return Ok(());
    }
    let reason = format!("the platform {platform} cannot run here: sandboxes are {own}");
    Err(Error::new(line, reason))
}

fn check_name(name: &str, line: u32, context: &Context<'_>) -> Result<()> {
    let valid = name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name
            .chars()
            .all(|one| one.is_ascii_alphanumeric() || "-_.".contains(one));
    if !valid {
        let reason = format!("{name:?} cannot be the name of a stage");
        return Err(Error::new(line, reason));
    }
    if context.stage_named(name).is_some() {
        return Err(Error::new(line, format!("there are two stages {name}")));
    }
    Ok(())
}
