//! SSH into a sandbox.

use clap::Args;

use super::ServerArgs;

/// Log in to a sandbox with ssh.
///
/// Runs the ssh of this machine with the settings that it needs; nothing has to run in the
/// sandbox, and nothing has to be set up. Commands, exit codes, terminals and signals are as with
/// any other host. For scp, sftp, rsync and editors, which start ssh themselves, see
/// `soulbox ssh-config`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox ssh i3k4
  soulbox ssh i3k4 uname -a
  soulbox ssh i3k4 -L 5432:localhost:5432
  tar c src | soulbox ssh i3k4 'tar x -C /tmp'

Exit codes: the command's own; 255 when ssh or SoulBox failed, or a signal ended the command.")]
#[command(override_usage = "soulbox ssh [OPTIONS] SANDBOX [--] [COMMAND]...")]
pub(crate) struct SshArgs {
    /// Id, or the beginning of one
    pub sandbox: String,
    /// Command for the account's shell; without one a login shell on a terminal
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Account inside the sandbox
    #[arg(short = 'l', long, value_name = "NAME", default_value = "user")]
    pub user: String,
    /// On a terminal, also with a command
    #[arg(short, long)]
    pub tty: bool,
    /// A port here that leads into the sandbox, as ssh writes it. May be repeated
    #[arg(short = 'L', long = "forward", value_name = "PORT:HOST:HOSTPORT")]
    pub forwards: Vec<String>,
    /// Option for ssh, such as ServerAliveInterval=30. May be repeated
    #[arg(short = 'o', long = "option", value_name = "NAME=VALUE")]
    pub options: Vec<String>,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Speak SSH for a sandbox on standard input and output.
///
/// For ssh's option ProxyCommand: `soulbox ssh-config` prints how. Who can start it with a valid
/// API key is let in.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  scp -o ProxyCommand='soulbox ssh-proxy i3k4' notes.txt user@i3k4:")]
pub(crate) struct SshProxyArgs {
    /// Id, or the beginning of one; `soulbox-` before it is left out
    pub sandbox: String,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Print settings for ~/.ssh/config.
///
/// With them `ssh soulbox-ID`, scp, sftp, rsync and editors reach every sandbox. Address and key
/// are looked up as by all commands when ssh starts; --data-dir and --api-url are written down, a
/// key never is.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox ssh-config >> ~/.ssh/config
  ssh soulbox-i3k4
  scp -r src soulbox-i3k4:
  rsync -a src/ soulbox-i3k4:src/         # where the template has rsync
  code --remote ssh-remote+soulbox-i3k4 /home/user
  soulbox ssh-config i3k4 > config && ssh -F config soulbox-i3k4")]
pub(crate) struct SshConfigArgs {
    /// Ids, or beginnings of ids; without any for all sandboxes, by the pattern soulbox-*
    pub sandboxes: Vec<String>,
    /// Account inside the sandbox
    #[arg(short = 'l', long, value_name = "NAME", default_value = "user")]
    pub user: String,
    #[command(flatten)]
    pub server: ServerArgs,
}
