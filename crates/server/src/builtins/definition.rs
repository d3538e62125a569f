//! A definition as its file has it: `templates/README.md` explains the keys.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::values::Values;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Definition {
    pub(super) name: String,
    /// For people.
    #[serde(rename = "description")]
    _description: String,
    /// For people: a change of content is noticed by itself.
    #[serde(rename = "version")]
    _version: u32,
    pub(super) base: BaseDefinition,
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    /// For the steps of this definition and of the one that it stands on, in that one's place.
    #[serde(default)]
    pub(super) values: Values,
    #[serde(default)]
    pub(super) steps: Vec<StepDefinition>,
    pub(super) start: Option<String>,
    pub(super) ready: Option<String>,
    pub(super) cpu: Option<u32>,
    pub(super) memory_mb: Option<u32>,
    pub(super) disk_mb: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum BaseDefinition {
    Debian { packages: Vec<String> },
    Template(String),
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "UPPERCASE", deny_unknown_fields)]
pub(super) enum StepDefinition {
    Run {
        args: Vec<String>,
    },
    Env {
        args: Vec<String>,
    },
    Workdir {
        args: Vec<String>,
    },
    User {
        args: Vec<String>,
    },
    Copy {
        source: String,
        dest: String,
        #[serde(default)]
        owner: String,
        #[serde(default)]
        mode: String,
    },
}
