//! Templates, their builds, and what a build is asked to do. Fields that E2B does not have are
//! marked as ours.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use soulbox_types::Secret;

use super::Resources;

/// A request for a build, before any file is sent.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestBuild {
    /// With a tag or without.
    pub name: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    #[serde(flatten)]
    pub resources: Resources,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestedBuild {
    #[serde(rename = "templateID")]
    pub template: String,
    #[serde(rename = "buildID")]
    pub build: String,
    #[serde(default)]
    pub names: Vec<String>,
    #[serde(default)]
    pub tags: Vec<String>,
}

/// Where the files of a COPY go, if they are not there.
#[derive(Debug, Clone, Deserialize)]
pub struct FileSlot {
    pub present: bool,
    #[serde(default)]
    pub url: Option<String>,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
}

/// Everything that a build does.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StartBuild {
    #[serde(flatten)]
    pub base: BuildBase,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_image_registry: Option<Registry>,
    /// Ours: what the last stage copies from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<BuildStage>,
    pub steps: Vec<BuildStep>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_cmd: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_cmd: Option<String>,
    pub force: bool,
}

/// Exactly one of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum BuildBase {
    #[serde(rename = "fromImage")]
    Image(String),
    #[serde(rename = "fromTemplate")]
    Template(String),
    /// Ours: an earlier stage.
    #[serde(rename = "fromStage")]
    Stage(usize),
    /// Ours: a tar of a root file system, uploaded under this hash.
    #[serde(rename = "fromArchive")]
    Archive(String),
}

impl Default for BuildBase {
    fn default() -> Self {
        Self::Template("base".to_owned())
    }
}

/// Ours: a stage before the last.
#[derive(Debug, Clone, Serialize)]
pub struct BuildStage {
    pub from: StageFrom,
    pub steps: Vec<BuildStep>,
}

#[derive(Debug, Clone, Serialize)]
pub struct StageFrom {
    #[serde(flatten)]
    pub base: StageBase,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registry: Option<Registry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StageBase {
    Image(String),
    Template(String),
    Stage(usize),
    Archive(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BuildStep {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub args: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files_hash: Option<String>,
    /// Ours: a COPY from there instead of from uploaded files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<StepSource>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StepSource {
    Stage(usize),
    Image(String),
}

/// How to sign in where the image is.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Registry {
    Registry {
        username: String,
        #[serde(serialize_with = "exposed")]
        password: Secret,
    },
}

/// The one place where it has to leave.
fn exposed<S: serde::Serializer>(secret: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(secret.expose())
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BuildStatus {
    /// `waiting`, `building`, `ready` or `error`.
    pub status: String,
    #[serde(default)]
    pub log_entries: Vec<BuildLogEntry>,
    #[serde(default)]
    pub reason: Option<BuildReason>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BuildLogEntry {
    /// RFC 3339.
    pub timestamp: String,
    /// May hold bytes from inside the build.
    pub message: String,
    pub level: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
}

/// Why a build failed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BuildReason {
    pub message: String,
    /// `base`, `finalize`, or the number of a step of the last stage, from 1.
    #[serde(default)]
    pub step: Option<String>,
}

/// A row of the list. What we do not show is kept as it came.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Template {
    #[serde(rename = "templateID")]
    pub id: String,
    #[serde(rename = "buildID", default)]
    pub build: String,
    #[serde(default)]
    pub names: Vec<String>,
    #[serde(default)]
    pub aliases: Vec<String>,
    #[serde(default)]
    pub cpu_count: u32,
    #[serde(rename = "memoryMB", default)]
    pub memory_mb: u32,
    #[serde(rename = "diskSizeMB", default)]
    pub disk_size_mb: Option<u32>,
    #[serde(default)]
    pub build_status: String,
    #[serde(default)]
    pub created_at: String,
    #[serde(default)]
    pub updated_at: String,
    #[serde(flatten)]
    pub rest: BTreeMap<String, Value>,
}

impl Template {
    /// What people call it.
    pub fn name(&self) -> &str {
        let names = self.aliases.iter().chain(&self.names);
        names.map(String::as_str).next().unwrap_or(&self.id)
    }

    pub fn is_called(&self, name: &str) -> bool {
        self.id == name
            || self
                .aliases
                .iter()
                .chain(&self.names)
                .any(|own| own == name)
    }
}

/// A template with its builds.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateDetail {
    #[serde(rename = "templateID")]
    pub id: String,
    #[serde(default)]
    pub builds: Vec<TemplateBuild>,
    #[serde(flatten)]
    pub rest: BTreeMap<String, Value>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateBuild {
    #[serde(rename = "buildID")]
    pub id: String,
    pub status: String,
    #[serde(default)]
    pub created_at: String,
    #[serde(default)]
    pub finished_at: Option<String>,
    #[serde(default)]
    pub cpu_count: u32,
    #[serde(rename = "memoryMB", default)]
    pub memory_mb: u32,
    #[serde(rename = "diskSizeMB", default)]
    pub disk_size_mb: Option<u32>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateTag {
    pub tag: String,
    #[serde(rename = "buildID")]
    pub build: String,
    #[serde(default)]
    pub created_at: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_build_is_asked_for_in_e2bs_words_and_ours() {
        let build = StartBuild {
            base: BuildBase::Image("debian:12".to_owned()),
            from_image_registry: Some(Registry::Registry {
                username: "u".to_owned(),
                password: Secret::new("p"),
            }),
            stages: vec![BuildStage {
                from: StageFrom {
                    base: StageBase::Stage(0),
                    registry: None,
                },
                steps: vec![],
            }],
            steps: vec![BuildStep {
                kind: "COPY",
                args: vec!["/a".to_owned()],
                files_hash: None,
                from: Some(StepSource::Stage(0)),
            }],
            ..StartBuild::default()
        };
        assert_eq!(
            serde_json::to_value(&build).unwrap(),
            json!({
                "fromImage": "debian:12",
                "fromImageRegistry": {"type": "registry", "username": "u", "password": "p"},
                "stages": [{"from": {"stage": 0}, "steps": []}],
                "steps": [{"type": "COPY", "args": ["/a"], "from": {"stage": 0}}],
                "force": false,
            })
        );
        assert!(!format!("{build:?}").contains("\"p\""));
    }
}
