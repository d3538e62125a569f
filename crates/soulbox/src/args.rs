//! What the command line understands. Everything the user can type is declared here and below.

use std::{net::SocketAddr, path::PathBuf};

use clap::{
    Args, Parser, Subcommand,
    error::{ContextKind, ContextValue},
};
use soulbox_client::config::DEFAULT_DATA_DIR;
use soulbox_server::Endpoint;
use soulbox_types::Secret;

use crate::suggest::of_another_program;

mod backup;
mod bench;
mod copies;
mod create;
mod disk;
mod files;
mod install;
mod kept;
mod keys;
mod login;
mod observe;
mod pause;
mod process;
mod reach;
mod recover;
mod ssh;
mod template;
mod trust;
mod values;

pub(crate) use backup::{BackupArgs, RestoreArgs};
pub(crate) use bench::BenchArgs;
pub(crate) use copies::{
    ForkArgs, SnapshotCommand, SnapshotCreateArgs, SnapshotListArgs, SnapshotRemoveArgs,
};
pub(crate) use create::{CreateArgs, NewSandboxArgs};
pub(crate) use disk::{DiskArgs, PruneArgs};
pub(crate) use files::{CopyArgs, CopyPath};
pub(crate) use install::{InstallArgs, ManArgs, PlaceArgs, UninstallArgs};
pub(crate) use kept::{
    SecretCommand, SecretCreateArgs, SecretListArgs, SecretRemoveArgs, VolumeCommand,
    VolumeInspectArgs, VolumeListArgs, VolumeRemoveArgs,
};
pub(crate) use keys::{KeyCommand, Offline};
pub(crate) use login::{ContextCommand, LoginArgs, LogoutArgs};
pub(crate) use observe::{
    EventsArgs, InspectArgs, ListArgs, LogsArgs, ProcessesArgs, StatsArgs, TopArgs, WaitArgs,
};
pub(crate) use pause::{PauseArgs, ResumeArgs};
pub(crate) use process::{AttachArgs, CommandArgs, ExecArgs, RunArgs, ShellArgs};
pub(crate) use reach::{ForwardArgs, OpenArgs, PortPair, UrlArgs};
pub(crate) use recover::RecoverArgs;
pub(crate) use ssh::{SshArgs, SshConfigArgs, SshProxyArgs};
pub(crate) use template::{
    BuildArgs, BuildSettings, FromHostArgs, FromImageArgs, FromTarArgs, RegistryArgs,
    TemplateCommand, TemplateInspectArgs, TemplateListArgs, TemplateLogsArgs, TemplateRemoveArgs,
    TemplateTagArgs,
};

pub(crate) use trust::{TrustArgs, TrustPart};

/// SoulBox: sandboxes for code that you do not trust, on your own machine.
#[derive(Debug, Parser)]
#[command(name = "soulbox", version, after_long_help = EXIT_CODES)]
#[command(arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  0        success
  1        the operation failed
  2        the command line makes no sense
  124      run, exec: the command did not end within --timeout
  125      run, exec, shell, attach: SoulBox itself failed (no server, no sandbox, ...)
  126      run, exec: the command cannot be executed
  127      run, exec: the command was not found
  128+N    run, exec: the command (or soulbox) was ended by signal N
  other    run, exec, shell, attach: the command's own exit code

Settings are looked for in this order: --api-url, --api-key; with --data-dir the `env` file that
`soulbox serve` writes into that folder, with --context what `soulbox login` kept, and nothing else;
SOULBOX_API_URL, SOULBOX_API_KEY; SOULBOX_CONTEXT; E2B_API_URL, E2B_API_KEY, E2B_SANDBOX_URL,
E2B_DOMAIN; the `env` file in SOULBOX_DATA_DIR; the current context; the `env` file in
/var/lib/soulbox. On the server's machine nothing needs to be set. SSL_CERT_FILE adds root
certificates.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the server
    ///
    /// Needs root. The first start makes an API key and writes it, with the addresses, to `env`
    /// and `env.tls` in the data folder. SIGTERM and Ctrl-C end the server, not its sandboxes: the
    /// next start on the same folder finds them.
    #[command(after_help = "\
Examples:
  soulbox serve
  soulbox serve --listen 0.0.0.0:3000 --domain sandboxes.example.com \\
      --https 0.0.0.0:443 --tls-cert chain.pem --tls-key key.pem
  soulbox serve --data-dir /srv/soulbox --config /etc/soulbox.toml")]
    Serve(Box<soulbox_server::ServeArgs>),
    /// Answer the sandboxes' wildcard name on this machine
    ///
    /// For systems whose resolver does not know names such as 8000-i3k4.sbx.localhost.
    #[command(after_help = "\
Examples:
  soulbox dns
  soulbox dns --listen 127.0.0.1:53 --domain sbx.test")]
    Dns(soulbox_server::DnsArgs),
    Trust(TrustArgs),
    Doctor(DoctorArgs),
    Login(LoginArgs),
    Logout(LogoutArgs),
    /// Choose among the servers that you have logged in to
    Context {
        #[command(subcommand)]
        command: ContextCommand,
    },
    Run(RunArgs),
    Create(NewSandboxArgs),
    #[command(visible_alias = "list")]
    Ls(ListArgs),
    Ps(ProcessesArgs),
    Exec(ExecArgs),
    Attach(AttachArgs),
    Shell(ShellArgs),
    Cp(CopyArgs),
    #[command(visible_alias = "port-forward")]
    Forward(ForwardArgs),
    Url(UrlArgs),
    Open(OpenArgs),
    Ssh(SshArgs),
    SshProxy(SshProxyArgs),
    SshConfig(SshConfigArgs),
    Logs(LogsArgs),
    Inspect(InspectArgs),
    Events(EventsArgs),
    Wait(WaitArgs),
    Top(TopArgs),
    #[command(visible_alias = "rm")]
    Kill(KillArgs),
    Stats(StatsArgs),
    Timeout(TimeoutArgs),
    Pause(PauseArgs),
    Resume(ResumeArgs),
    Recover(RecoverArgs),
    Fork(ForkArgs),
    /// Keep the files of sandboxes, to make others from them
    Snapshot {
        #[command(subcommand)]
        command: SnapshotCommand,
    },
    /// Manage volumes: folders that outlive sandboxes and can be shared by them
    Volume {
        #[command(subcommand)]
        command: VolumeCommand,
    },
    Df(DiskArgs),
    Prune(PruneArgs),
    /// Manage secrets: values that the server keeps sealed
    Secret {
        #[command(subcommand)]
        command: SecretCommand,
    },
    /// Build and manage templates: what sandboxes start from
    Template {
        #[command(subcommand)]
        command: TemplateCommand,
    },
    /// Manage API keys
    Key {
        #[command(subcommand)]
        command: KeyCommand,
    },
    Backup(BackupArgs),
    Restore(RestoreArgs),
    Bench(Box<BenchArgs>),
    /// The server of a bench
    #[command(name = soulbox_bench::SERVER_COMMAND, hide = true)]
    BenchServer(Box<soulbox_server::ServeArgs>),
    Install(InstallArgs),
    Uninstall(UninstallArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
    Version(VersionArgs),
}

/// A word of another program gets what it is called here.
pub(crate) fn explain(mut error: clap::Error) -> clap::Error {
    let word = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) => word.clone(),
        _ => return error,
    };
    if let Some(here) = of_another_program(&word) {
        error.remove(ContextKind::SuggestedSubcommand);
        let tip = ContextValue::StyledStrs(vec![here.into()]);
        error.insert(ContextKind::Suggested, tip);
    }
    error
}

impl Command {
    /// What to exit with when SoulBox fails: commands that pass an exit code through need one of
    /// their own, so that scripts can tell the two apart.
    pub(crate) fn failure_code(&self) -> u8 {
        match self {
            Self::Run(_) | Self::Exec(_) | Self::Attach(_) | Self::Shell(_) => 125,
            _ => 1,
        }
    }
}

/// Which server, and as whom.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerArgs {
    /// Address of the server [default: from the environment or the data folder]
    #[arg(long, value_name = "URL")]
    pub api_url: Option<String>,
    /// API key [default: from the environment or the data folder]
    #[arg(long, value_name = "KEY", value_parser = secret)]
    pub api_key: Option<Secret>,
    /// The server of this data folder: address and key come from its `env` file, not from the
    /// environment [without it, after the environment: SOULBOX_DATA_DIR, else /var/lib/soulbox]
    // SOULBOX_DATA_DIR is left to the client: only the flag wins over the environment.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// A server that you have logged in to (`soulbox login`): address and key are its own
    // Builds have a positional argument of this name.
    #[arg(
        id = "server_context",
        long = "context",
        value_name = "NAME",
        conflicts_with_all = ["api_url", "api_key", "data_dir"]
    )]
    pub context: Option<String>,
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "clap's value parsers return results"
)]
fn secret(text: &str) -> Result<Secret, std::convert::Infallible> {
    Ok(Secret::new(text))
}

/// Find out what this machine can give, by trying it.
///
/// Namespaces, disks, control groups, firewall, a whole sandbox, gVisor, virtual machines: each is
/// really used and put away again. Needs root, as the server does: what could not be tried is marked `?`. Exits
/// with 0 when `soulbox serve` can run here.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sudo soulbox doctor
  sudo soulbox doctor --json | jq -r '.tiers[] | select(.offered) | .tier'")]
pub(crate) struct DoctorArgs {
    /// The server's data folder: its file system matters
    #[arg(long, value_name = "DIR", env = "SOULBOX_DATA_DIR", default_value = DEFAULT_DATA_DIR)]
    pub data_dir: PathBuf,
    /// Where the server will serve without encryption
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "SOULBOX_LISTEN",
        default_value = "127.0.0.1:3000"
    )]
    pub listen: SocketAddr,
    /// Where it will serve with TLS, or `off`
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "SOULBOX_HTTPS",
        default_value = "127.0.0.1:3443"
    )]
    pub https: Endpoint,
    /// Where its metrics will be, or `off`
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "SOULBOX_ADMIN",
        default_value = "127.0.0.1:3001"
    )]
    pub admin: Endpoint,
    /// What the server will keep free on the data folder's disk, in MiB
    #[arg(
        long,
        value_name = "MIB",
        env = "SOULBOX_MIN_FREE_DISK_MB",
        default_value_t = 1024
    )]
    pub min_free_disk_mb: u32,
    /// Without what takes seconds: starting gVisor and a virtual machine
    #[arg(long)]
    pub quick: bool,
    /// For programs
    #[arg(long)]
    pub json: bool,
}

/// End sandboxes.
///
/// Everything in them is lost.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox kill i3k4                  # ids may be shortened while they are unique
  soulbox kill $(soulbox ls -q)
  soulbox kill --all
  sudo soulbox kill --all --offline  # of every key, after the server was stopped for good")]
#[command(override_usage = "\
soulbox kill [OPTIONS] SANDBOX...
       soulbox kill [OPTIONS] --all")]
pub(crate) struct KillArgs {
    /// Ids, or beginnings of ids
    #[arg(required_unless_present = "all", value_name = "SANDBOX")]
    pub sandboxes: Vec<String>,
    /// All sandboxes of this API key's tenant
    #[arg(long, conflicts_with = "sandboxes")]
    pub all: bool,
    /// Accepted as `docker rm` has it: a running sandbox is always ended
    #[arg(short, long)]
    pub force: bool,
    /// With --all: those of every key, straight in the data folder of a server that does not run,
    /// with all that it has left on this machine
    #[arg(long, requires = "all", conflicts_with_all = ["api_url", "api_key"])]
    pub offline: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Say when a sandbox ends, counted from now.
///
/// Earlier or later than it would have ended.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox timeout i3k4 3600          # one more hour
  soulbox timeout i3k4 2h
  soulbox timeout i3k4 0             # now")]
pub(crate) struct TimeoutArgs {
    /// Id, or the beginning of one
    pub sandbox: String,
    /// Seconds, or a number with s, m, h or d
    #[arg(value_parser = values::seconds)]
    pub seconds: u32,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Print a completion script for a shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox completions bash > /etc/bash_completion.d/soulbox
  soulbox completions zsh > \"${fpath[1]}/_soulbox\"
  soulbox completions fish > ~/.config/fish/completions/soulbox.fish")]
pub(crate) struct CompletionsArgs {
    pub shell: clap_complete::Shell,
}

/// Print the version.
#[derive(Debug, Args)]
pub(crate) struct VersionArgs {
    /// For programs
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests;
