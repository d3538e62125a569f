//! ARG and ENV.

use super::Draft;
use crate::{
    Error, Result, StepKind,
    expand::{self, Names, Text, When},
    read::Context,
    source::Instruction,
    words,
};

/// An ARG above the first FROM.
pub(crate) fn global_arg(instruction: &Instruction, context: &mut Context<'_>) -> Result<()> {
    for (name, default) in arguments(instruction, context.escape)? {
        let default = match default {
            Some(text) => Some(known(&text, instruction, &context.globals, context)?),
            None => context.globals.inherited(&name),
        };
        let value = context.build_arg(&name).or(default);
        context.globals.args.insert(name, value);
    }
    Ok(())
}

impl Draft {
    pub(super) fn arg(
        &mut self,
        instruction: &Instruction,
        context: &mut Context<'_>,
    ) -> Result<()> {
        for (name, default) in arguments(instruction, context.escape)? {
            let default = match default {
                Some(text) => Some(known(&text, instruction, &self.scope, context)?),
                None => context.globals.inherited(&name),
            };
            let value = context.build_arg(&name).or(default);
            self.scope.args.insert(name, value);
        }
        Ok(())
    }

    pub(super) fn env(
        &mut self,
        instruction: &Instruction,
        context: &mut Context<'_>,
    ) -> Result<()> {
        let line = instruction.line;
        // All values of one instruction see the variables as they were before it.
        let mut assigned: Vec<(String, Text)> = Vec::new();
        for (name, value) in pairs(instruction, context.escape)? {
            let value = expand::word(&value, context.escape, &self.scope, When::Build)
                .map_err(|reason| Error::new(line, reason))?;
            assigned.push((name, value));
        }
        let mut args = Vec::new();
        for (name, value) in assigned {
            self.scope.env.insert(name.clone(), value.known());
            args.extend([name, value.for_build()]);
        }
        self.push(line, StepKind::Env, args);
        Ok(())
    }
}

fn known(
    text: &str,
    instruction: &Instruction,
    names: &dyn Names,
    context: &Context<'_>,
) -> Result<String> {
    expand::word(text, context.escape, names, When::Now)
        .map(|text| text.known().unwrap_or_default())
        .map_err(|reason| Error::new(instruction.line, reason))
}

fn arguments(instruction: &Instruction, escape: char) -> Result<Vec<(String, Option<String>)>> {
    let line = instruction.line;
    let words = words::split(&instruction.rest, escape);
    if words.is_empty() {
        return Err(Error::new(line, "ARG needs a name"));
    }
    words
        .iter()
        .map(|word| {
            let (name, default) = match word.split_once('=') {
                Some((name, default)) => (name, Some(default.to_owned())),
                None => (word.as_str(), None),
            };
            Ok((checked(name, line)?, default))
        })
        .collect()
}

/// `ENV A=1 B=2`, or the old `ENV A one two`.
fn pairs(instruction: &Instruction, escape: char) -> Result<Vec<(String, String)>> {
    let line = instruction.line;
    let words = words::split(&instruction.rest, escape);
    let first = words.first().map(String::as_str).unwrap_or_default();
    if !first.contains('=') {
        let value = instruction.rest[first.len()..].trim();
        if value.is_empty() {
            return Err(Error::new(line, format!("ENV {first} needs a value")));
        }
        return Ok(vec![(checked(first, line)?, value.to_owned())]);
    }
    words
        .iter()
        .map(|word| {
            let (name, value) = word.split_once('=').ok_or_else(|| {
                let reason = format!("{word} has no =; quote values with spaces");
                Error::new(line, reason)
            })?;
            Ok((checked(name, line)?, value.to_owned()))
        })
        .collect()
}

fn checked(name: &str, line: u32) -> Result<String> {
    let name = name.trim_matches(['"', '\'']);
    let valid = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name
            .chars()
            .all(|one| one.is_ascii_alphanumeric() || one == '_');
    if valid {
        Ok(name.to_owned())
    } else {
        let reason = format!("{name:?} cannot be the name of a variable");
        Err(Error::new(line, reason))
    }
}
