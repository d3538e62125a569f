//! What a tenant wants to have built, and whether it can be asked of a builder at all.

use serde::{Deserialize, Serialize};
use soulbox_build::{CopySource, Credentials, Step};
use soulbox_types::Secret;

use crate::{Error, Result};

const MAX_STAGES: usize = 50;
const MAX_STEPS: usize = 500;
const MAX_ARGUMENTS: usize = 1000;
const MAX_ARGUMENT_BYTES: usize = 256 << 10;
const MAX_COMMAND_BYTES: usize = 64 << 10;
const MAX_REFERENCE_CHARS: usize = 1024;
const HASH_DIGITS: usize = 64;

/// The stages of a build, of which the last becomes the template. Kept, sealed, while it is built.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BuildDefinition {
    pub stages: Vec<StageDefinition>,
    pub start: Option<String>,
    pub ready: Option<String>,
    /// Nothing is taken from the cache.
    pub force: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StageDefinition {
    pub base: BaseDefinition,
    pub steps: Vec<Step>,
}

/// What a stage starts from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum BaseDefinition {
    Image {
        reference: String,
        credentials: Option<Credentials>,
    },
    /// An id or a name, as for a sandbox.
    Template(String),
    /// An earlier one, counted from 0.
    Stage(usize),
    /// A tar of a root file system, uploaded as the files of a COPY are.
    Archive(String),
}

impl BuildDefinition {
    pub(crate) fn check(&self) -> Result<()> {
        if self.stages.is_empty() || self.stages.len() > MAX_STAGES {
            return invalid(format!("a build has 1 to {MAX_STAGES} stages"));
        }
        let steps: usize = self.stages.iter().map(|stage| stage.steps.len()).sum();
        if steps > MAX_STEPS {
            return invalid(format!(
                "a build has at most {MAX_STEPS} steps, not {steps}"
            ));
        }
        for (what, command) in [("startCmd", &self.start), ("readyCmd", &self.ready)] {
            if let Some(command) = command {
                check_text(what, command, MAX_COMMAND_BYTES)?;
            }
        }
        let last = self.stages.len() - 1;
        for (number, stage) in self.stages.iter().enumerate() {
            // Counted as the client counts: its own steps are those of the last stage.
            let place = if number == last {
                String::new()
            } else {
                format!("stage {number}, ")
            };
            stage.base.check(number)?;
            for (at, step) in stage.steps.iter().enumerate() {
                check_step(step, number, &format!("{place}step {}", at + 1))?;
            }
        }
        Ok(())
    }

    /// What no log may show.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let secret = |secret: &Secret| secret.expose().to_owned();
        let bases = self.stages.iter().map(|stage| &stage.base);
        bases
            .filter_map(|base| match base {
                BaseDefinition::Image { credentials, .. } => credentials.as_ref(),
                _ => None,
            })
            .map(|credentials| match credentials {
                Credentials::Basic { password, .. } => secret(password),
                Credentials::Aws {
                    secret_access_key, ..
                } => secret(secret_access_key),
                Credentials::Gcp {
                    service_account_json,
                } => secret(service_account_json),
            })
            .collect()
    }
}

impl BaseDefinition {
    fn check(&self, stage: usize) -> Result<()> {
        match self {
            Self::Image { reference, .. } => check_image("fromImage", reference),
            Self::Template(name) => check_text("fromTemplate", name, MAX_REFERENCE_CHARS),
            Self::Stage(earlier) if *earlier < stage => Ok(()),
            Self::Stage(earlier) => invalid(format!(
                "stage {stage} starts from stage {earlier}, which is not an earlier one"
            )),
            Self::Archive(hash) => check_hash("fromArchive", hash),
        }
    }
}

fn check_step(step: &Step, stage: usize, place: &str) -> Result<()> {
    if step.args.len() > MAX_ARGUMENTS {
        return invalid(format!("{place} has more than {MAX_ARGUMENTS} arguments"));
    }
    for argument in &step.args {
        check_text(
            &format!("an argument of {place}"),
            argument,
            MAX_ARGUMENT_BYTES,
        )?;
    }
    if let Some(hash) = &step.files_hash {
        check_hash(&format!("the filesHash of {place}"), hash)?;
    }
    match &step.from {
        Some(CopySource::Stage(earlier)) if *earlier >= stage => invalid(format!(
            "{place} copies from stage {earlier}, which is not an earlier one"
        )),
        Some(CopySource::Image(reference)) => {
            check_image(&format!("the image of {place}"), reference)
        }
        _ => Ok(()),
    }
}

/// What files are uploaded under.
pub(crate) fn check_hash(what: &str, hash: &str) -> Result<()> {
    let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    if hash.len() == HASH_DIGITS && hash.bytes().all(hex) {
        Ok(())
    } else {
        invalid(format!("{what} must be 64 lower-case hex digits"))
    }
}

fn check_image(what: &str, reference: &str) -> Result<()> {
    check_text(what, reference, MAX_REFERENCE_CHARS)?;
    if reference.is_empty() || reference.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return invalid(format!("{what} is not the name of an image"));
    }
    Ok(())
}

fn check_text(what: &str, text: &str, most: usize) -> Result<()> {
    if text.len() > most {
        return invalid(format!("{what} is longer than {most} bytes"));
    }
    if text.contains('\0') {
        return invalid(format!("{what} contains NUL"));
    }
    Ok(())
}

fn invalid<T>(message: String) -> Result<T> {
    Err(Error::Invalid(message))
}

#[cfg(test)]
mod tests {
    use soulbox_build::StepKind;

    use super::*;

    fn step(args: &[&str]) -> Step {
        Step {
            kind: StepKind::Run,
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            files_hash: None,
            from: None,
            force: false,
        }
    }

    fn stage(base: BaseDefinition, steps: Vec<Step>) -> StageDefinition {
        StageDefinition { base, steps }
    }

    fn image(reference: &str) -> BaseDefinition {
        BaseDefinition::Image {
            reference: reference.to_owned(),
            credentials: None,
        }
    }

    fn definition(stages: Vec<StageDefinition>) -> BuildDefinition {
        BuildDefinition {
            stages,
            start: None,
            ready: None,
            force: false,
        }
    }

    #[track_caller]
    fn refused(stages: Vec<StageDefinition>, why: &str) {
        let message = definition(stages).check().unwrap_err().to_string();
        assert!(message.contains(why), "{message}");
    }

    #[test]
    fn what_a_builder_understands_is_let_through() {
        let copy = Step {
            from: Some(CopySource::Stage(0)),
            ..step(&["a", "b", "", ""])
        };
        let stages = vec![
            stage(
                image("registry:5000/a/b:c@sha256:00"),
                vec![step(&["true"])],
            ),
            stage(BaseDefinition::Archive("a".repeat(64)), vec![]),
            stage(BaseDefinition::Stage(1), vec![copy]),
        ];
        definition(stages).check().unwrap();
    }

    #[test]
    fn what_is_wrong_is_named_with_its_step() {
        let base = || image("debian");
        refused(vec![], "1 to 50 stages");
        refused(
            vec![stage(base(), vec![step(&[]); 501])],
            "at most 500 steps, not 501",
        );
        refused(
            vec![stage(base(), vec![step(&["a"]), step(&["\0"])])],
            "an argument of step 2 contains NUL",
        );
        let hashed = Step {
            files_hash: Some("../x".into()),
            ..step(&[])
        };
        refused(
            vec![stage(base(), vec![hashed.clone()])],
            "the filesHash of step 1 must be 64",
        );
        let before = stage(base(), vec![hashed]);
        refused(
            vec![before, stage(base(), vec![])],
            "the filesHash of stage 0, step 1",
        );
        let itself = Step {
            from: Some(CopySource::Stage(0)),
            ..step(&[])
        };
        refused(vec![stage(base(), vec![itself])], "not an earlier one");
        refused(
            vec![stage(BaseDefinition::Stage(0), vec![])],
            "not an earlier one",
        );
        refused(
            vec![stage(image("a b"), vec![])],
            "not the name of an image",
        );
        let archive = BaseDefinition::Archive("A".repeat(64));
        refused(vec![stage(archive, vec![])], "fromArchive must be");
    }

    #[test]
    fn credentials_are_not_shown() {
        let base = BaseDefinition::Image {
            reference: "x".into(),
            credentials: Some(Credentials::Basic {
                username: "me".into(),
                password: Secret::new("hunter2"),
            }),
        };
        let definition = definition(vec![stage(base, vec![])]);
        assert_eq!(definition.secrets(), ["hunter2"]);
        assert!(!format!("{definition:?}").contains("hunter2"));
    }
}
