use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use soulbox_types::{Limits, StartCommand, TemplateId, UnixMillis, guest::OverlaySpec};

/// What a sandbox starts from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Template {
    pub id: TemplateId,
    /// A UUID that follows from the layers: another content is another build.
    pub build_id: String,
    pub aliases: Vec<String>,
    /// In the order to mount: `/` first. Files belong to ids 0, 1000, … as inside.
    pub overlays: Vec<OverlaySpec>,
    pub env: BTreeMap<String, String>,
    pub default_user: String,
    /// Empty: the home of whoever runs the command.
    pub default_workdir: String,
    pub limits: Limits,
    #[serde(default)]
    pub start: Option<StartCommand>,
    pub created_at: UnixMillis,
}
