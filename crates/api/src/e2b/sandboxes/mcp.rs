//! `create(mcp=…)`: the client makes a sandbox, by default of E2B's template `mcp-gateway`, and then
//! starts the program `mcp-gateway` in it. SoulBox has no such template, and says so. Another
//! template may bring the program; where it does not, the client fails to start it, says so and
//! ends the sandbox, as with E2B.

use soulbox_control::{Control, Reference, Tenant};

use crate::shared::error::{ApiError, Result};

/// What the clients ask for when no template is named.
const GATEWAY: &str = "mcp-gateway";
const INSTEAD: &str = "start the MCP servers that you need with `commands.run` and reach them \
                       through `get_host`, or create from a template of your own that has the \
                       program `mcp-gateway`";

pub(super) fn check(control: &Control, tenant: &Tenant, template: &str) -> Result<()> {
    let reference = Reference::parse(template)?;
    if reference.name == GATEWAY && control.find_template(tenant, &reference)?.is_none() {
        return Err(ApiError::not_supported("the MCP gateway (mcp)", INSTEAD));
    }
    Ok(())
}
