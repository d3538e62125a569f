use std::time::Duration;

use soulbox_types::SandboxSpec;

pub const TENANT: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

/// A user's sandbox of the template `base` with nothing special about it, for five minutes.
pub fn spec() -> SandboxSpec {
    let (tenant, template) = (TENANT.parse().unwrap(), "base".parse().unwrap());
    SandboxSpec::new(tenant, template, Duration::from_mins(5))
}
