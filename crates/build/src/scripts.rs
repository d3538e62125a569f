//! Shell scripts that run as root inside a build's sandbox.

macro_rules! script {
    ($($name:literal),+) => {
        concat!($(include_str!(concat!("scripts/", $name))),+)
    };
}

pub(crate) const FACTS: &str = script!("facts.sh");
pub(crate) const PROVISION: &str = script!("accounts.sh", "open_up.sh", "provision.sh");
pub(crate) const USER: &str = script!("accounts.sh", "user.sh");
pub(crate) const HOME: &str = script!("accounts.sh", "home.sh");
pub(crate) const MATCHES: &str = script!("matches.sh");
pub(crate) const WORKDIR: &str = script!("workdir.sh");
pub(crate) const FINALIZE: &str = script!("accounts.sh", "open_up.sh", "finalize.sh");
/// For what users wrote: bash as E2B has it, or what the image has.
pub(crate) const LOGIN_SHELL: &str = script!("login_shell.sh");
