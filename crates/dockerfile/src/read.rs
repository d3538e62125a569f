//! Reads a whole Dockerfile.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Base, Copy, CopyFrom, Error, Plan, Result, Stage, Warning,
    scope::Globals,
    source::{self, Instruction},
    stage::{self, Draft},
};

/// The options of `docker build` besides the file.
#[derive(Debug, Clone)]
pub struct Options {
    pub build_args: BTreeMap<String, String>,
    /// The stage to build; the last one when `None`.
    pub target: Option<String>,
    /// Docker's name of the machine's: `amd64`, `arm64`.
    pub architecture: String,
}

impl Default for Options {
    /// For this machine.
    fn default() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        Self {
            build_args: BTreeMap::new(),
            target: None,
            architecture: architecture.to_owned(),
        }
    }
}

/// What the instructions of a stage need to know of the rest.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub options: &'a Options,
    pub escape: char,
    pub globals: Globals,
    /// Stages that are read, as drafts: a later one can start from them.
    pub stages: Vec<Draft>,
    /// Names of all stages, to distinguish a later one from an image.
    all_names: Vec<String>,
    pub used_args: BTreeSet<String>,
    pub warnings: Vec<Warning>,
}

impl Context<'_> {
    pub(crate) fn warn(&mut self, line: u32, message: impl Into<String>) {
        self.warnings.push(Warning {
            line: Some(line),
            message: message.into(),
        });
    }

    /// The value that the command line gives.
    pub(crate) fn build_arg(&mut self, name: &str) -> Option<String> {
        let value = self.options.build_args.get(name)?;
        self.used_args.insert(name.to_owned());
        Some(value.clone())
    }

    pub(crate) fn stage_named(&self, name: &str) -> Option<usize> {
        self.stages.iter().rposition(|stage| stage.is_named(name))
    }

    /// Whether a stage that is not read yet is called so.
    pub(crate) fn is_later_stage(&self, name: &str) -> bool {
        self.all_names
            .iter()
            .any(|other| other.eq_ignore_ascii_case(name))
    }
}

pub fn read(text: &str, options: &Options) -> Result<Plan> {
    let source = source::read(text)?;
    let mut context = Context {
        options,
        escape: source.escape,
        globals: Globals::new(&options.architecture),
        stages: Vec::new(),
        all_names: stage::names(&source.instructions),
        used_args: BTreeSet::new(),
        warnings: source.warnings,
    };
    let mut current: Option<Draft> = None;
    for instruction in &source.instructions {
        match (instruction.keyword.as_str(), &mut current) {
            ("FROM", _) => {
                context.stages.extend(current.take());
                current = Some(stage::from(instruction, &mut context)?);
            }
            (_, Some(draft)) => draft.apply(instruction, &mut context)?,
            ("ARG", None) => stage::global_arg(instruction, &mut context)?,
            (_, None) => return Err(before_from(instruction)),
        }
    }
    context.stages.extend(current);
    let target = target(&context)?;
    for name in options.build_args.keys() {
        if !context.used_args.contains(name) {
            context.warnings.push(Warning {
                line: None,
                message: format!("the file has no ARG {name}: --build-arg {name} changes nothing"),
            });
        }
    }
    Ok(finish(context.stages, target, context.warnings))
}

fn before_from(instruction: &Instruction) -> Error {
    let keyword = &instruction.keyword;
    let reason = if stage::is_known(keyword) {
        format!("{keyword} stands before the first FROM; only ARG can")
    } else {
        stage::unknown(keyword)
    };
    Error::new(instruction.line, reason)
}

fn target(context: &Context<'_>) -> Result<usize> {
    let Some(last) = context.stages.len().checked_sub(1) else {
        return Err(Error::new(
            1,
            "there is no FROM: nothing says what to build on",
        ));
    };
    let Some(name) = &context.options.target else {
        return Ok(last);
    };
    let by_number = || name.parse().ok().filter(|number| *number <= last);
    context
        .stage_named(name)
        .or_else(by_number)
        .ok_or_else(|| Error::new(1, format!("there is no stage {name:?} to build")))
}

/// Keeps the target and what it needs, with new numbers.
fn finish(drafts: Vec<Draft>, target: usize, warnings: Vec<Warning>) -> Plan {
    let mut needed = BTreeSet::from([target]);
    for number in (0..=target).rev() {
        if needed.contains(&number) {
            needed.extend(drafts[number].needs());
        }
    }
    let numbers: BTreeMap<usize, usize> = needed.into_iter().zip(0..).collect();
    let mut stages = Vec::new();
    let mut start = stage::Start::default();
    for (number, draft) in drafts.into_iter().enumerate() {
        if numbers.contains_key(&number) {
            let is_last = number == target;
            if is_last {
                start = draft.start();
            }
            stages.push(renumber(draft.into_stage(is_last), &numbers));
        }
    }
    Plan {
        stages,
        start: start.command,
        ready: start.ready,
        start_line: start.line,
        warnings,
    }
}

fn renumber(mut stage: Stage, numbers: &BTreeMap<usize, usize>) -> Stage {
    let new = |number: &mut usize| {
        if let Some(renumbered) = numbers.get(number) {
            *number = *renumbered;
        }
    };
    if let Base::Stage(number) = &mut stage.base {
        new(number);
    }
    for step in &mut stage.steps {
        if let Some(Copy::From(CopyFrom::Stage(number))) = &mut step.copy {
            new(number);
        }
    }
    stage
}
