//! What is to be built, as the control plane hands it over.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use soulbox_image::Credentials;
use soulbox_template::Template;
use soulbox_types::{Limits, TemplateId, TenantId};

/// One build: stages of which the last becomes the template.
#[derive(Debug, Clone)]
pub struct BuildRequest {
    /// A UUID: of the build, and of the template that comes out.
    pub build: String,
    pub template: TemplateId,
    pub tenant: TenantId,
    pub aliases: Vec<String>,
    pub limits: Limits,
    /// At least one. Those before the last are only there to copy from.
    pub stages: Vec<Stage>,
    /// `None`: as the base template's, if it is a template.
    pub start: Option<String>,
    pub ready: Option<String>,
    /// Nothing is taken from the cache.
    pub force: bool,
}

#[derive(Debug, Clone)]
pub struct Stage {
    pub base: Base,
    pub steps: Vec<Step>,
    /// Of the first steps, each: what it belongs to of that which may be done at the same time, if it
    /// does. Steps that follow each other and all have a lane are run lane by lane, each lane from the
    /// same files; what they change must not be the same. Only for definitions of the server's own.
    pub lanes: Vec<Option<String>>,
}

/// What a stage starts from.
#[derive(Debug, Clone)]
pub enum Base {
    /// As `docker pull` takes it.
    Image {
        reference: String,
        credentials: Option<Credentials>,
    },
    Template(Arc<Template>),
    /// An earlier stage of the same build.
    Stage(usize),
    /// A tar of a root file system, uploaded under this hash.
    Archive {
        hash: String,
    },
    /// Debian, made with `mmdebstrap` from the machine's own package sources.
    Debian {
        packages: Vec<String>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub kind: StepKind,
    /// As on E2B's wire: see `docs/templates.md`.
    pub args: Vec<String>,
    /// Of a COPY: the name under which its files were uploaded.
    #[serde(default)]
    pub files_hash: Option<String>,
    /// Of a COPY: from there instead of from uploaded files.
    #[serde(default)]
    pub from: Option<CopySource>,
    /// This step and all later ones are not taken from the cache.
    #[serde(default)]
    pub force: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum StepKind {
    #[serde(alias = "ADD")]
    Copy,
    Run,
    #[serde(alias = "ARG")]
    Env,
    Workdir,
    User,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CopySource {
    Stage(usize),
    Image(String),
}
