//! A definition as its file has it: `templates/README.md` explains the keys.

use std::collections::BTreeMap;

use anyhow::Context;
use serde::Deserialize;

use super::{source::Source, values::Values};

#[derive(Debug, Clone, Deserialize)]
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
    /// About how long the base takes, for those who wait; so have RUN steps.
    #[serde(default)]
    pub(super) base_seconds: u32,
    /// The same for what comes after the last step. Absent: as below.
    pub(super) end_seconds: Option<u32>,
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

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum BaseDefinition {
    Debian { packages: Vec<String> },
    Template(String),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "type", rename_all = "UPPERCASE", deny_unknown_fields)]
pub(super) enum StepDefinition {
    Run {
        args: Vec<String>,
        #[serde(default)]
        seconds: u32,
        /// Steps with lanes run at the same time, lane by lane.
        lane: Option<String>,
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
        lane: Option<String>,
    },
}

impl Definition {
    pub(super) fn read(source: &Source) -> anyhow::Result<Self> {
        let text = source.text()?;
        toml::from_str(&text).with_context(|| source.to_string())
    }
}

impl BaseDefinition {
    /// The one that it stands on.
    pub(super) fn template(&self) -> Option<&str> {
        match self {
            Self::Template(name) => Some(name),
            Self::Debian { .. } => None,
        }
    }
}

impl StepDefinition {
    pub(super) fn lane(&self) -> Option<String> {
        match self {
            Self::Run { lane, .. } | Self::Copy { lane, .. } => lane.clone(),
            _ => None,
        }
    }

    pub(super) fn seconds(&self) -> u32 {
        match self {
            Self::Run { seconds, .. } => *seconds,
            _ => 0,
        }
    }
}
