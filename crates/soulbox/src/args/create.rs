use clap::Args;
use soulbox_client::model::VolumeMount;
use soulbox_types::limits::MAX_CPUS;

use super::{
    ServerArgs,
    values::{assignment, disk, instance_type, memory, not_a_template, seconds, volume_mount},
};

/// What kind of sandbox to make.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "New sandbox")]
pub(crate) struct CreateArgs {
    /// Template to make the sandbox from
    // No short form: -t is --tty, as in Docker.
    #[arg(long, default_value = "base", value_name = "NAME")]
    pub template: String,
    /// Longest life; 90, 15m or 2h [default: as long as this command runs; of `create` five minutes]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub timeout: Option<u32>,
    /// Environment variable; a name alone takes the value that it has here. May be repeated
    #[arg(short, long = "env", value_name = "NAME[=VALUE]", value_parser = assignment)]
    pub environment: Vec<(String, String)>,
    /// Metadata by which the sandbox can be found again. May be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    pub metadata: Vec<(String, String)>,
    /// Size by name, for what --cpu, --memory and --disk leave open
    #[arg(long = "type", value_name = "TYPE", value_parser = instance_type())]
    pub instance_type: Option<String>,
    /// Cpus
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_CPUS)))]
    pub cpu: Option<u32>,
    /// Memory; 512, 512m or 2g
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub memory: Option<u32>,
    /// Space for new files; 2048, 500m or 10g
    #[arg(long, value_name = "SIZE", value_parser = disk)]
    pub disk: Option<u32>,
    /// A volume, and where it is in the sandbox (`soulbox volume create`). May be repeated
    #[arg(short, long = "volume", value_name = "NAME:PATH", value_parser = volume_mount)]
    pub volumes: Vec<VolumeMount>,
    /// No way out to the internet
    #[arg(long)]
    pub no_internet: bool,
}

/// Make a sandbox and print its id.
///
/// It goes on until its timeout (five minutes unless --timeout says otherwise) or `soulbox kill`.
/// `soulbox timeout` moves its end.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  id=$(soulbox create --timeout 1h)
  soulbox create --template my-app --memory 1g
  soulbox create -v results:/data --no-internet")]
pub(crate) struct NewSandboxArgs {
    #[command(flatten)]
    pub create: CreateArgs,
    /// For programs: the server's answer, without tokens
    #[arg(long)]
    pub json: bool,
    /// What -t was
    #[arg(short = 't', value_name = "NAME", hide = true, value_parser = not_a_template)]
    pub formerly: Option<String>,
    #[command(flatten)]
    pub server: ServerArgs,
}
