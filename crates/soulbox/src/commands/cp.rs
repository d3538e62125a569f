//! Copying: a source that gives chunks, a sink that takes them. Files travel as they are, folders
//! as tar archives.

use std::path::Path;

use anyhow::{Result, bail};
use soulbox_client::{
    Envd,
    envd::files::{Entry, EntryKind},
};

use crate::{
    args::{CopyArgs, CopyPath},
    context::Server,
    report::advice,
};

mod archive;
mod chunk_stream;
mod local;
mod progress;
mod remote;
mod target;

use chunk_stream::ChunkStream;
use progress::Progress;
use target::{last_name, means_contents};

/// What is known of a source before anything moves.
struct SourceInfo {
    is_directory: bool,
    /// Copy what is in it, not itself.
    contents: bool,
    /// What it is called, where it keeps its name.
    name: Option<String>,
    mode: Option<u32>,
}

pub(super) async fn run(args: &CopyArgs) -> Result<u8> {
    if let (CopyPath::Local(_) | CopyPath::Standard, CopyPath::Local(_) | CopyPath::Standard) =
        (&args.source, &args.destination)
    {
        let hint = "write one side as SANDBOX:PATH; `soulbox ls` shows the sandboxes";
        return Err(advice("neither side is in a sandbox", hint));
    }
    let server = Server::connect(&args.server)?;
    let source = Endpoint::open(&server, &args.source, args.user.as_ref()).await?;
    let destination = Endpoint::open(&server, &args.destination, args.user.as_ref()).await?;
    let source_info = source.source_info().await?;

    let progress = Progress::start(args.quiet);
    let chunk_stream = if source_info.is_directory {
        source.archive()
    } else {
        source.content()
    };
    let chunk_stream = chunk_stream.counted(&progress);
    let result = destination.take(&source_info, chunk_stream).await;
    progress.finish();
    result.map(|()| 0)
}

enum Endpoint {
    Local(std::path::PathBuf),
    Standard,
    Sandbox(Box<Envd>, String),
}

impl Endpoint {
    async fn open(server: &Server, copy_path: &CopyPath, user: Option<&String>) -> Result<Self> {
        Ok(match copy_path {
            CopyPath::Local(path) => Self::Local(path.clone()),
            CopyPath::Standard => Self::Standard,
            CopyPath::Sandbox { sandbox, path } => {
                let envd = server.enter(sandbox, user.cloned()).await?;
                Self::Sandbox(Box::new(envd), path.clone())
            }
        })
    }

    async fn source_info(&self) -> Result<SourceInfo> {
        match self {
            Self::Local(path) => local::source_info(path),
            Self::Standard => Ok(SourceInfo {
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

    async fn take(self, source_info: &SourceInfo, chunk_stream: ChunkStream) -> Result<()> {
        match self {
            Self::Local(path) => local::take(&path, source_info, chunk_stream).await,
            Self::Sandbox(envd, path) => {
                remote::take(&envd, &path, source_info, chunk_stream).await
            }
            Self::Standard if source_info.is_directory => bail!("a folder cannot be copied to `-`"),
            Self::Standard => local::standard_output(chunk_stream).await,
        }
    }
}

fn of_entry(entry: &Entry, path: &str) -> SourceInfo {
    SourceInfo {
        is_directory: entry.kind == EntryKind::Directory,
        contents: means_contents(Path::new(path)),
        // The name comes from inside the sandbox and becomes a path out here.
        name: last_name(Path::new(&entry.path)),
        mode: (entry.mode != 0).then_some(entry.mode & 0o777),
    }
}
