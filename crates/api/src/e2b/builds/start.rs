//! `POST /v2/templates/{id}/builds/{build}`: what is to be built.

use axum::extract::State;
use http::StatusCode;
use serde::Deserialize;
use soulbox_control::{
    BaseDefinition, BuildDefinition, StageDefinition,
    build::{CopySource, Credentials, Step, StepKind},
};
use soulbox_types::Secret;

use super::check_build_id;
use crate::{
    router::App,
    shared::{
        auth::Caller,
        body::Json as Body,
        error::{ApiError, Result},
        path::Segment,
    },
};

/// E2B's `TemplateBuildStartV2`, and what is ours.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StartBody {
    #[serde(flatten)]
    base: BaseBody,
    #[serde(default)]
    force: Option<bool>,
    steps: Option<Vec<StepBody>>,
    start_cmd: Option<String>,
    ready_cmd: Option<String>,
    /// Ours: stages before the last, only there to copy from.
    stages: Option<Vec<StageBody>>,
}

/// Exactly one.
#[derive(Debug, Deserialize)]
struct BaseBody {
    #[serde(rename = "fromImage")]
    image: Option<String>,
    #[serde(rename = "fromImageRegistry")]
    registry: Option<Registry>,
    #[serde(rename = "fromTemplate")]
    template: Option<String>,
    // Ours.
    #[serde(rename = "fromStage")]
    stage: Option<usize>,
    #[serde(rename = "fromArchive")]
    archive: Option<String>,
}

#[derive(Debug, Deserialize)]
struct StageBody {
    from: From,
    steps: Option<Vec<StepBody>>,
}

#[derive(Debug, Deserialize)]
struct From {
    image: Option<String>,
    registry: Option<Registry>,
    template: Option<String>,
    stage: Option<usize>,
    archive: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Registry {
    #[serde(rename = "registry")]
    Basic { username: String, password: Secret },
    #[serde(rename_all = "camelCase")]
    Aws {
        aws_access_key_id: String,
        aws_secret_access_key: Secret,
        aws_region: String,
    },
    #[serde(rename_all = "camelCase")]
    Gcp { service_account_json: Secret },
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StepBody {
    #[serde(rename = "type")]
    kind: String,
    args: Option<Vec<String>>,
    files_hash: Option<String>,
    force: Option<bool>,
    /// Ours.
    from: Option<CopySource>,
}

pub(crate) async fn start(
    State(app): State<App>,
    caller: Caller,
    Segment((template, build)): Segment<(String, String)>,
    Body(body): Body<StartBody>,
) -> Result<StatusCode> {
    check_build_id(&build)?;
    let definition = body.into_definition()?;
    app.control
        .start_build(&caller.tenant, &template, &build, definition)
        .await?;
    Ok(StatusCode::ACCEPTED)
}

impl StartBody {
    fn into_definition(self) -> Result<BuildDefinition> {
        let mut stages = Vec::new();
        for (number, stage) in self.stages.into_iter().flatten().enumerate() {
            let place = format!("stage {number}, ");
            stages.push(StageDefinition {
                base: stage.from.into_base()?,
                steps: steps(stage.steps, &place)?,
            });
        }
        stages.push(StageDefinition {
            base: self.base.into_from().into_base()?,
            steps: steps(self.steps, "")?,
        });
        let said = |command: Option<String>| command.filter(|command| !command.is_empty());
        Ok(BuildDefinition {
            stages,
            start: said(self.start_cmd),
            ready: said(self.ready_cmd),
            force: self.force.unwrap_or(false),
        })
    }
}

impl BaseBody {
    fn into_from(self) -> From {
        From {
            image: self.image,
            registry: self.registry,
            template: self.template,
            stage: self.stage,
            archive: self.archive,
        }
    }
}

impl From {
    fn into_base(self) -> Result<BaseDefinition> {
        let said = |text: Option<String>| text.filter(|text| !text.is_empty());
        let credentials = self.registry.map(Credentials::from);
        let image = said(self.image).map(|reference| BaseDefinition::Image {
            reference,
            credentials,
        });
        let all = [
            image,
            said(self.template).map(BaseDefinition::Template),
            self.stage.map(BaseDefinition::Stage),
            said(self.archive).map(BaseDefinition::Archive),
        ];
        let mut said = all.into_iter().flatten();
        match (said.next(), said.next()) {
            (Some(base), None) => Ok(base),
            _ => Err(ApiError::bad_request(
                "a build starts from exactly one of fromImage, fromTemplate, fromStage \
                 and fromArchive",
            )),
        }
    }
}

impl std::convert::From<Registry> for Credentials {
    fn from(registry: Registry) -> Self {
        match registry {
            Registry::Basic { username, password } => Self::Basic { username, password },
            Registry::Aws {
                aws_access_key_id,
                aws_secret_access_key,
                aws_region,
            } => Self::Aws {
                access_key_id: aws_access_key_id,
                secret_access_key: aws_secret_access_key,
                region: aws_region,
            },
            Registry::Gcp {
                service_account_json,
            } => Self::Gcp {
                service_account_json,
            },
        }
    }
}

fn steps(steps: Option<Vec<StepBody>>, place: &str) -> Result<Vec<Step>> {
    let steps = steps.unwrap_or_default().into_iter();
    let step = |(number, step): (usize, StepBody)| step.into_step(place, number);
    (1..).zip(steps).map(step).collect()
}

impl StepBody {
    fn into_step(self, place: &str, number: usize) -> Result<Step> {
        let bad = |why: String| {
            let message = format!("{place}step {number}: {why}");
            Err(ApiError::bad_request(message))
        };
        let kind = match self.kind.to_ascii_uppercase().as_str() {
            "COPY" | "ADD" => StepKind::Copy,
            "RUN" => StepKind::Run,
            "ENV" | "ARG" => StepKind::Env,
            "WORKDIR" => StepKind::Workdir,
            "USER" => StepKind::User,
            _ => {
                let kind: String = self.kind.chars().take(50).collect();
                return bad(format!(
                    "there is no step type {kind:?}; there are COPY, ADD, RUN, ENV, ARG, WORKDIR \
                     and USER"
                ));
            }
        };
        if self.from.is_some() && kind != StepKind::Copy {
            return bad("only COPY takes `from`".to_owned());
        }
        let files_hash = self.files_hash.filter(|hash| !hash.is_empty());
        if kind == StepKind::Copy && files_hash.is_none() && self.from.is_none() {
            return bad("COPY needs filesHash".to_owned());
        }
        Ok(Step {
            kind,
            args: self.args.unwrap_or_default(),
            files_hash,
            from: self.from,
            force: self.force.unwrap_or(false),
        })
    }
}
