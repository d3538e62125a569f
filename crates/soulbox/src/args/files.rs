use std::{convert::Infallible, path::PathBuf, str::FromStr};

use clap::Args;

use super::ServerArgs;

/// Copy files and folders into, out of and between sandboxes.
///
/// As with `cp -r` and `docker cp`: into a folder that is there, or as a new name. `SRC/.` means
/// what is in the folder, `-` standard input or output. Folders need `tar` in the sandbox.
///
/// Inside, copies belong to the account of --user. Files are readable by all (0644), and programs
/// keep their mode; what is in a folder keeps its modes. Outside, they belong to whoever copies, and
/// new ones get the mode that they have inside.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox cp report.csv i3k4:          # into the home folder
  soulbox cp src i3k4:/work/src
  soulbox cp a.txt b.txt src i3k4:/work/  # several, into a folder
  soulbox cp i3k4:out/plot.png .
  soulbox cp i3k4:/var/log/app.log - | less
  soulbox cp i3k4:data.db i9xy:data.db")]
#[command(override_usage = "soulbox cp [OPTIONS] SRC... DST")]
pub(crate) struct CopyArgs {
    /// Files or folders: PATH, SANDBOX:PATH or -; several go into a folder
    #[arg(value_name = "SRC", required = true, num_args = 1..)]
    pub sources: Vec<CopyPath>,
    /// Where to: PATH, SANDBOX:PATH or -
    #[arg(value_name = "DST", required = true)]
    pub destination: CopyPath,
    /// Account inside the sandbox [default: the template's, `user` in base]
    #[arg(short, long, value_name = "NAME")]
    pub user: Option<String>,
    /// No progress
    #[arg(short, long)]
    pub quiet: bool,
    /// Accepted as other programs have it; folders are always copied whole
    // Whoever types `cp` types it.
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// One side of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CopyPath {
    Local(PathBuf),
    Standard,
    Sandbox { sandbox: String, path: String },
}

impl FromStr for CopyPath {
    type Err = Infallible;

    /// `name:path` is in a sandbox, as with scp and docker; `./name:path` is local.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        if text == "-" {
            return Ok(Self::Standard);
        }
        if let Some((sandbox, path)) = text.split_once(':')
            && !sandbox.is_empty()
            && sandbox
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        {
            return Ok(Self::Sandbox {
                sandbox: sandbox.to_owned(),
                path: path.to_owned(),
            });
        }
        Ok(Self::Local(PathBuf::from(text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_after_an_id_means_a_sandbox() {
        let copy_path = |text: &str| text.parse::<CopyPath>().unwrap();
        let inside = |sandbox: &str, path: &str| CopyPath::Sandbox {
            sandbox: sandbox.to_owned(),
            path: path.to_owned(),
        };
        assert_eq!(copy_path("i3k4:/tmp/a:b"), inside("i3k4", "/tmp/a:b"));
        assert_eq!(copy_path("i3k4:"), inside("i3k4", ""));
        assert_eq!(copy_path("./i3k4:x"), CopyPath::Local("./i3k4:x".into()));
        assert_eq!(copy_path("/a/b:c"), CopyPath::Local("/a/b:c".into()));
        assert_eq!(copy_path("A:b"), CopyPath::Local("A:b".into()));
        assert_eq!(copy_path("-"), CopyPath::Standard);
    }
}
