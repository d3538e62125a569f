use std::{collections::BTreeMap, time::Duration};

use soulbox_types::{
    Lifecycle, Limits, NetworkPolicy, Purpose, SandboxId, SandboxSpec, Secret, Tier, UnixMillis,
};

pub const TENANT: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

/// A user's sandbox of the template `base` with nothing special about it, for five minutes.
pub fn spec() -> SandboxSpec {
    let now = UnixMillis::now();
    SandboxSpec {
        id: SandboxId::random(),
        tenant: TENANT.parse().unwrap(),
        tier: Tier::default(),
        template: "base".parse().unwrap(),
        build: None,
        purpose: Purpose::User,
        alias: None,
        limits: Limits::default(),
        env: BTreeMap::new(),
        metadata: BTreeMap::new(),
        network: NetworkPolicy::default(),
        lifecycle: Lifecycle::default(),
        snapshot: None,
        volumes: Vec::new(),
        access_token: None,
        traffic_token: None,
        node_token: Secret::random(),
        created_at: now,
        deadline: now.plus(Duration::from_mins(5)),
    }
}
