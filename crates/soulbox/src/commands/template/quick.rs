//! Templates without a Dockerfile: of an image, a tar file, or the server's own system.

use anyhow::{Context, Result};
use soulbox_client::model::templates::{BuildBase, BuildStep, StartBuild};

use super::{
    credentials::RegistryCredentials,
    job::{self, Job},
    lines::Lines,
};
use crate::{
    args::{BuildSettings, FromHostArgs, FromImageArgs, FromTarArgs},
    context::Server,
    pack::Archive,
};

pub(super) async fn from_image(args: &FromImageArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    let credentials = RegistryCredentials::open(&args.registry)?;
    let mut start = start(
        BuildBase::Image(args.image.clone()),
        &args.run,
        &args.settings,
    );
    start.from_image_registry = credentials.of(&args.image);
    build(&server, &args.name, start, Vec::new(), &args.settings).await
}

pub(super) async fn from_tar(args: &FromTarArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    let path = args.file.clone();
    let reading = tokio::task::spawn_blocking(move || Archive::whole(&path));
    let archive = reading
        .await?
        .with_context(|| args.file.display().to_string())?;
    let base = BuildBase::Archive(archive.hash.clone());
    let start = start(base, &args.run, &args.settings);
    build(&server, &args.name, start, vec![archive], &args.settings).await
}

pub(super) async fn from_host(args: &FromHostArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    let base = BuildBase::Template("base".to_owned());
    let start = start(base, &args.run, &args.settings);
    build(&server, &args.name, start, Vec::new(), &args.settings).await
}

fn start(base: BuildBase, commands: &[String], settings: &BuildSettings) -> StartBuild {
    let steps = commands.iter().map(|command| BuildStep {
        kind: "RUN",
        args: vec![command.clone(), "root".to_owned()],
        files_hash: None,
        from: None,
    });
    StartBuild {
        base,
        steps: steps.collect(),
        start_cmd: settings.start.clone(),
        ready_cmd: settings.ready.clone(),
        force: settings.no_cache,
        ..StartBuild::default()
    }
}

async fn build(
    server: &Server,
    name: &str,
    start: StartBuild,
    archives: Vec<Archive>,
    settings: &BuildSettings,
) -> Result<u8> {
    let job = Job {
        name: name.to_owned(),
        start,
        archives,
        lines: Lines::default(),
    };
    job::run(server, settings, job).await
}
