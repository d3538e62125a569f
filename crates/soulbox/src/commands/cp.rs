//! Copying: a source that gives chunks, a sink that takes them. Files travel as they are, folders
//! as tar archives.

use std::{collections::HashSet, path::Path};

use anyhow::{Result, bail};
use soulbox_client::{
    Envd,
    envd::files::{Entry, EntryKind},
};

use crate::{
    args::{CopyArgs, CopyPath},
    context::Server,
    interrupts::unless_interrupted,
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
use target::{last_name, means_contents, says_folder};

/// What is known of a source before anything moves.
struct SourceInfo {
    is_directory: bool,
    /// Copy what is in it, not itself.
    contents: bool,
    /// What it is called, where it keeps its name.
    name: Option<String>,
    mode: Option<u32>,
}

impl SourceInfo {
    /// In a folder.
    fn own_name(&self) -> Option<&str> {
        self.name.as_deref().filter(|_| !self.contents)
    }
}

pub(super) async fn run(args: &CopyArgs) -> Result<u8> {
    let is_outside = |path: &CopyPath| !matches!(path, CopyPath::Sandbox { .. });
    if is_outside(&args.destination) && args.sources.iter().any(is_outside) {
        let hint = "write one side as SANDBOX:PATH; `soulbox ls` shows the sandboxes";
        return Err(advice("neither side is in a sandbox", hint));
    }
    let server = Server::connect(&args.server)?;
    let user = args.user.as_ref();
    let mut sources = Vec::new();
    for path in &args.sources {
        let source = Endpoint::open(&server, path, user).await?;
        let source_info = source.source_info().await?;
        sources.push((source, source_info));
    }
    let destination = Endpoint::open(&server, &args.destination, user).await?;
    // What cannot be copied is told before anything is.
    if sources.len() > 1 {
        destination.check_folder(&sources).await?;
    }
    let progress = Progress::start(args.quiet);
    let copying = async {
        for (source, source_info) in sources {
            let chunk_stream = if source_info.is_directory {
                source.archive()
            } else {
                source.content()
            };
            let chunk_stream = chunk_stream.counted(&progress);
            let destination = destination.clone();
            destination.take(&source_info, chunk_stream).await?;
        }
        anyhow::Ok(0)
    };
    let leave = "what was being copied may be there in part; `soulbox cp` again replaces it";
    let result = unless_interrupted(copying, leave).await;
    progress.finish();
    result?
}

#[derive(Clone)]
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

    /// Several sources go into a folder, each under its own name.
    async fn check_folder(&self, sources: &[(Self, SourceInfo)]) -> Result<()> {
        let hint = "several sources go into a folder: name one that is there, or make it first";
        let (is_folder, shown) = match self {
            Self::Standard => {
                return Err(advice(
                    "several sources cannot be copied to `-`",
                    "copy them into a folder",
                ));
            }
            Self::Local(path) => (path.is_dir(), path.display().to_string()),
            Self::Sandbox(envd, path) => {
                let is_folder = match envd.stat(path).await {
                    Ok(entry) => entry.kind == EntryKind::Directory,
                    // It is made, as with one source.
                    Err(error) if error.is_not_found() => says_folder(path),
                    Err(error) => return Err(error.into()),
                };
                (is_folder, path.clone())
            }
        };
        if !is_folder {
            return Err(advice(format!("{shown} is not a folder"), hint));
        }
        let nameless = sources
            .iter()
            .any(|(source, _)| matches!(source, Self::Standard));
        if nameless {
            let hint = "copy it by itself: - SANDBOX:FOLDER/NAME";
            return Err(advice("standard input has no name in a folder", hint));
        }
        let mut names = HashSet::new();
        for name in sources.iter().filter_map(|(_, info)| info.own_name()) {
            if !names.insert(name) {
                let hint = "one would replace the other: copy them one by one";
                return Err(advice(format!("two sources are called {name}"), hint));
            }
        }
        Ok(())
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
