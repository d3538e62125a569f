//! Copying: a source that gives chunks, a sink that takes them. Files travel as they are, folders
//! as tar archives.

use std::path::Path;

use anyhow::{Result, bail};
use soulbox_client::{
    Envd,
    envd::files::{Entry, EntryKind},
};

use crate::{
    args::{CopyArgs, Place},
    context::Server,
    report::advice,
};

mod archive;
mod flow;
mod local;
mod progress;
mod remote;
mod target;

use flow::ChunkStream;
use progress::Progress;
use target::{last_name, means_contents};

/// What is known of a source before anything moves.
struct Origin {
    is_directory: bool,
    /// Copy what is in it, not itself.
    contents: bool,
    /// What it is called, where it keeps its name.
    name: Option<String>,
    mode: Option<u32>,
}

pub(super) async fn run(args: &CopyArgs) -> Result<u8> {
    if let (Place::Local(_) | Place::Standard, Place::Local(_) | Place::Standard) =
        (&args.source, &args.destination)
    {
        let hint = "write one side as SANDBOX:PATH; `soulbox ls` shows the sandboxes";
        return Err(advice("neither side is in a sandbox", hint));
    }
    let server = Server::connect(&args.server)?;
    let source = Side::open(&server, &args.source, args.user.as_ref()).await?;
    let destination = Side::open(&server, &args.destination, args.user.as_ref()).await?;
    let origin = source.origin().await?;

    let progress = Progress::start(args.quiet);
    let flow = if origin.is_directory {
        source.archive()
    } else {
        source.content()
    };
    let flow = flow.counted(&progress);
    let result = destination.take(&origin, flow).await;
    progress.finish();
    result.map(|()| 0)
}

enum Side {
    Local(std::path::PathBuf),
    Standard,
    Sandbox(Box<Envd>, String),
}

impl Side {
    async fn open(server: &Server, place: &Place, user: Option<&String>) -> Result<Self> {
        Ok(match place {
            Place::Local(path) => Self::Local(path.clone()),
            Place::Standard => Self::Standard,
            Place::Sandbox { sandbox, path } => {
                let envd = server.enter(sandbox, user.cloned()).await?;
                Self::Sandbox(Box::new(envd), path.clone())
            }
        })
    }

    async fn origin(&self) -> Result<Origin> {
        match self {
            Self::Local(path) => local::origin(path),
            Self::Standard => Ok(Origin {
                is_directory: false,
                contents: false,
                name: None,
                mode: None,
            }),
            Self::Sandbox(envd, path) => Ok(of_entry(&envd.stat(path).await?, path)),
        }
    }

    fn content(self) -> ChunkStream {
        match self {
            Self::Local(path) => local::read(path),
            Self::Standard => local::standard_input(),
            Self::Sandbox(envd, path) => remote::read(*envd, path),
        }
    }

    fn archive(self) -> ChunkStream {
        match self {
            Self::Local(path) => archive::pack(path),
            Self::Standard => local::standard_input(),
            Self::Sandbox(envd, path) => remote::pack(*envd, path),
        }
    }

    async fn take(self, origin: &Origin, flow: ChunkStream) -> Result<()> {
        match self {
            Self::Local(path) => local::take(&path, origin, flow).await,
            Self::Sandbox(envd, path) => remote::take(&envd, &path, origin, flow).await,
            Self::Standard if origin.is_directory => bail!("a folder cannot be copied to `-`"),
            Self::Standard => local::standard_output(flow).await,
        }
    }
}

fn of_entry(entry: &Entry, path: &str) -> Origin {
    Origin {
        is_directory: entry.kind == EntryKind::Directory,
        contents: means_contents(Path::new(path)),
        // The name comes from inside the sandbox and becomes a path out here.
        name: last_name(Path::new(&entry.path)),
        mode: (entry.mode != 0).then_some(entry.mode & 0o777),
    }
}
