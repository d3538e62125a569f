use clap::Args;

use super::{
    CreateArgs, ServerArgs,
    values::{assignment, seconds},
};

/// Make a sandbox, run one command in it, and throw it away.
///
/// The command is executed as it is, without a shell; --shell takes a line for bash. Its output
/// and exit code are passed through. The sandbox is ended with the command, also on Ctrl-C.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox run -- python3 -c 'print(6 * 7)'
  soulbox run --timeout 30 --memory 256m -- ./untrusted
  soulbox run --no-internet --shell 'ls -l | wc -l'
  tar c src | soulbox run -- sh -c 'tar x && make -C src test'
  soulbox run -it bash
  soulbox run --keep --timeout 1h -- git clone https://example.com/x.git

Exit codes: the command's own; 124 timeout, 125 SoulBox failed, 126 not executable, 127 not found,
128+N ended by signal N.")]
#[command(override_usage = "\
soulbox run [OPTIONS] [--] COMMAND...
       soulbox run [OPTIONS] --shell LINE")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub command: CommandArgs,
    /// Leave the sandbox running at the end and print its id on stderr
    #[arg(long)]
    pub keep: bool,
    /// Accepted as Docker has it: without --keep the sandbox always ends with the command
    #[arg(long, conflicts_with = "keep")]
    pub rm: bool,
    #[command(flatten)]
    pub create: CreateArgs,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// The command and how to run it.
#[derive(Debug, Clone, Args)]
pub(crate) struct CommandArgs {
    /// Command and arguments, executed directly
    // Its own options need no `allow_hyphen_values`, with which a mistyped option of ours would
    // be taken for the command.
    #[arg(
        required_unless_present = "shell",
        trailing_var_arg = true,
        value_name = "COMMAND"
    )]
    pub command: Vec<String>,
    /// Run this line with `bash -l -c` instead
    #[arg(long, value_name = "LINE", conflicts_with = "command")]
    pub shell: Option<String>,
    /// Account inside the sandbox [default: the template's, `user` in base]
    #[arg(short, long, value_name = "NAME")]
    pub user: Option<String>,
    /// Folder to run in [default: the account's home]
    #[arg(short, long, value_name = "DIR")]
    pub workdir: Option<String>,
    /// Pass on what is typed here as well (piped input is always passed on)
    #[arg(short, long = "interactive")]
    pub interactive: bool,
    /// On a terminal, with what is typed here; as in Docker usually written -it
    #[arg(short, long)]
    pub tty: bool,
}

impl CommandArgs {
    /// Program and arguments.
    pub(crate) fn argv(&self) -> (String, Vec<String>) {
        if let Some(line) = &self.shell {
            let arguments = ["-l", "-c", line.as_str()].map(str::to_owned);
            return ("/bin/bash".to_owned(), arguments.to_vec());
        }
        let mut words = self.command.iter().cloned();
        (words.next().unwrap_or_default(), words.collect())
    }
}

/// Run a command in a sandbox that is there.
///
/// The command is executed as it is, without a shell; --shell takes a line for bash. Its output
/// and exit code are passed through; Ctrl-C ends it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox exec i3k4 -- python3 --version
  soulbox exec i3k4 --user root --shell 'apt-get update && apt-get install -y jq'
  soulbox exec -it i3k4 bash
  soulbox exec i3k4 --detach -- python3 -m http.server 8000
  echo '1 + 1' | soulbox exec i3k4 -- bc

Exit codes: the command's own; 124 timeout, 125 SoulBox failed, 126 not executable, 127 not found,
128+N ended by signal N.")]
#[command(override_usage = "\
soulbox exec [OPTIONS] SANDBOX [--] COMMAND...
       soulbox exec [OPTIONS] SANDBOX --shell LINE")]
pub(crate) struct ExecArgs {
    /// Id, or the beginning of one
    pub sandbox: String,
    #[command(flatten)]
    pub command: CommandArgs,
    /// Environment variable; a name alone takes the value that it has here. May be repeated
    #[arg(short, long = "env", value_name = "NAME[=VALUE]", value_parser = assignment)]
    pub environment: Vec<(String, String)>,
    /// Kill the command after this; 90, 15m or 2h
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub timeout: Option<u32>,
    /// Start it, print its pid, and leave it running
    #[arg(short, long, conflicts_with_all = ["tty", "interactive"])]
    pub detach: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Watch the output of a running process.
///
/// First what it said before (as much as is kept), then what it says. Exits with its exit code.
/// Ctrl-C stops watching; the process goes on.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  pid=$(soulbox exec i3k4 --detach -- make all)
  soulbox attach i3k4 $pid")]
pub(crate) struct AttachArgs {
    /// Id, or the beginning of one
    pub sandbox: String,
    /// As `soulbox ps` shows it
    pub pid: u32,
    /// Only what comes from now on
    #[arg(long)]
    pub no_replay: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Open a terminal in a sandbox, or in a new one.
///
/// A new sandbox ends with its terminal. While a terminal is open, its sandbox does not reach its
/// end of life.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox shell                      # a new sandbox, thrown away at the end
  soulbox shell --memory 2g --no-internet
  soulbox shell i3k4 --user root")]
pub(crate) struct ShellArgs {
    /// Id, or the beginning of one; without it a new sandbox is made
    #[arg(conflicts_with_all = [
        "template", "timeout", "metadata", "instance_type", "cpu", "memory", "disk", "volumes",
        "no_internet",
    ])]
    pub sandbox: Option<String>,
    /// A shell always has a terminal
    #[arg(short = 't', long, hide = true)]
    pub tty: bool,
    /// A shell always passes on what is typed
    #[arg(short, long, hide = true)]
    pub interactive: bool,
    /// Account inside the sandbox [default: the template's, `user` in base]
    #[arg(short, long, value_name = "NAME")]
    pub user: Option<String>,
    /// Folder to begin in [default: the account's home]
    #[arg(short, long, value_name = "DIR")]
    pub workdir: Option<String>,
    #[command(flatten)]
    pub create: CreateArgs,
    #[command(flatten)]
    pub server: ServerArgs,
}
