use std::path::PathBuf;

use clap::{Args, Subcommand};
use soulbox_types::limits::MAX_CPUS;

use super::{
    ServerArgs,
    values::{assignment, disk, instance_type, memory},
};

#[derive(Debug, Subcommand)]
pub(crate) enum TemplateCommand {
    Build(Box<BuildArgs>),
    FromImage(Box<FromImageArgs>),
    FromTar(Box<FromTarArgs>),
    FromHost(Box<FromHostArgs>),
    #[command(visible_alias = "list")]
    Ls(TemplateListArgs),
    Rm(TemplateRemoveArgs),
    Inspect(TemplateInspectArgs),
    Tag(TemplateTagArgs),
    Logs(TemplateLogsArgs),
}

/// Build a template from a Dockerfile.
///
/// The Dockerfile is read here; only the files that it copies are sent, and only when the server
/// does not have them. What cannot be built is refused before anything runs, with its line. CMD
/// and ENTRYPOINT become the start command, a HEALTHCHECK the ready command. `FROM
/// template://NAME` builds on a template. Ctrl-C cancels the build; a second one only leaves.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox template build -t web .
  soulbox template build -f deploy/Dockerfile -t web:v2 --build-arg VERSION=2 .
  soulbox template build -t web --type standard-1 --ready 'curl -fs localhost:8000' .
  soulbox template build --builtin code-interpreter-v1

Exit codes: 0 built, 1 failed (with the step and its line), 130 cancelled.")]
#[command(override_usage = "\
soulbox template build [OPTIONS] [-f DOCKERFILE] -t NAME[:TAG] [CONTEXT]
       soulbox template build --builtin NAME")]
pub(crate) struct BuildArgs {
    /// Folder that COPY takes files from; `.dockerignore` in it counts
    #[arg(default_value = ".", value_name = "CONTEXT")]
    pub context: PathBuf,
    /// The Dockerfile, `-` for standard input [default: CONTEXT/Dockerfile]
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// What to call it [default: the name of the context folder]
    #[arg(short = 't', long = "tag", value_name = "NAME[:TAG]")]
    pub name: Option<String>,
    /// Value for an ARG; a name alone takes the value that it has here. May be repeated
    #[arg(long = "build-arg", value_name = "NAME[=VALUE]", value_parser = assignment)]
    pub arguments: Vec<(String, String)>,
    /// Stage to build [default: the last]
    #[arg(long, value_name = "STAGE")]
    pub target: Option<String>,
    /// Build a template that the server knows how to make, such as base-debian
    #[arg(long, value_name = "NAME", conflicts_with_all = [
        "context", "file", "name", "arguments", "target", "start", "ready", "instance_type", "cpu",
        "memory", "disk", "no_cache", "registry_username", "more_tags",
    ])]
    pub builtin: Option<String>,
    #[command(flatten)]
    pub registry: RegistryArgs,
    #[command(flatten)]
    pub settings: BuildSettings,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Options of every build.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Template")]
pub(crate) struct BuildSettings {
    /// Size by name, for what --cpu, --memory and --disk leave open
    #[arg(long = "type", value_name = "TYPE", value_parser = instance_type())]
    pub instance_type: Option<String>,
    /// Cpus of its sandboxes
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_CPUS)))]
    pub cpu: Option<u32>,
    /// Memory of its sandboxes; 512, 512m or 2g
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub memory: Option<u32>,
    /// Space for new files in its sandboxes; 2048, 500m or 10g
    #[arg(long, value_name = "SIZE", value_parser = disk)]
    pub disk: Option<u32>,
    /// Program that runs in every sandbox from its beginning
    #[arg(long, value_name = "CMD")]
    pub start: Option<String>,
    /// Succeeds when the start command is ready
    #[arg(long, value_name = "CMD")]
    pub ready: Option<String>,
    /// Another tag for the build. May be repeated
    #[arg(long = "also-tag", value_name = "TAG")]
    pub more_tags: Vec<String>,
    /// Take nothing from the cache
    #[arg(long)]
    pub no_cache: bool,
    /// Do not wait for the build
    #[arg(short, long)]
    pub detach: bool,
    /// No log: only the outcome
    #[arg(short, long)]
    pub quiet: bool,
    /// For programs: the outcome as an object
    #[arg(long)]
    pub json: bool,
}

/// How to sign in where the image is.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Registry")]
pub(crate) struct RegistryArgs {
    /// User name at the image's registry [default: from ~/.docker/config.json]
    #[arg(long, value_name = "NAME", requires = "registry_password_stdin")]
    pub registry_username: Option<String>,
    /// Read the password from standard input
    #[arg(long, requires = "registry_username")]
    pub registry_password_stdin: bool,
}

/// Make a template of an image.
///
/// As `docker pull` takes it; layers that the server has are not fetched again.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox template from-image python:3.12-slim -t py
  soulbox template from-image node:22 -t node --run 'npm install -g pnpm'
  soulbox template from-image ghcr.io/acme/app:1 -t app --start 'app serve' \\
      --registry-username bot --registry-password-stdin < token")]
pub(crate) struct FromImageArgs {
    /// Such as debian:12 or ghcr.io/acme/app@sha256:…
    pub image: String,
    /// What to call it
    #[arg(short = 't', long = "tag", value_name = "NAME[:TAG]")]
    pub name: String,
    /// Command to run as root on top of it. May be repeated
    #[arg(long, value_name = "CMD")]
    pub run: Vec<String>,
    #[command(flatten)]
    pub registry: RegistryArgs,
    #[command(flatten)]
    pub settings: BuildSettings,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Make a template of a root file system in a tar file.
///
/// Plain or with gzip, as `docker export`, `mmdebstrap` and `tar -C ROOT -c .` write it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mmdebstrap bookworm root.tar && soulbox template from-tar root.tar -t bookworm
  docker export $(docker create alpine) | gzip > a.tgz && soulbox template from-tar a.tgz -t alpine")]
pub(crate) struct FromTarArgs {
    /// The tar file
    pub file: PathBuf,
    /// What to call it
    #[arg(short = 't', long = "tag", value_name = "NAME[:TAG]")]
    pub name: String,
    /// Command to run as root on top of it. May be repeated
    #[arg(long, value_name = "CMD")]
    pub run: Vec<String>,
    #[command(flatten)]
    pub settings: BuildSettings,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Make a template of the server's own system.
///
/// What `base` is, with commands run on top of it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox template from-host -t tools --run 'apt-get update' --run 'apt-get install -y jq'")]
pub(crate) struct FromHostArgs {
    /// What to call it
    #[arg(short = 't', long = "tag", value_name = "NAME[:TAG]")]
    pub name: String,
    /// Command to run as root on top of it. May be repeated
    #[arg(long, value_name = "CMD")]
    pub run: Vec<String>,
    #[command(flatten)]
    pub settings: BuildSettings,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// List the templates.
#[derive(Debug, Args)]
pub(crate) struct TemplateListArgs {
    /// Names only
    #[arg(short, long, conflicts_with = "json")]
    pub quiet: bool,
    /// For programs: the server's own objects
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Delete templates.
///
/// One whose sandboxes still run or are paused is refused.
#[derive(Debug, Args)]
pub(crate) struct TemplateRemoveArgs {
    /// Names or ids
    #[arg(required = true, value_name = "TEMPLATE")]
    pub templates: Vec<String>,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Show a template with its builds and tags.
#[derive(Debug, Args)]
pub(crate) struct TemplateInspectArgs {
    /// Name or id
    pub template: String,
    /// For programs
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Give a build more tags, or take tags away.
///
/// A sandbox of NAME:TAG starts from the build that has the tag; NAME alone means NAME:default.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox template tag web:v2 stable latest
  soulbox template tag web --remove v1")]
pub(crate) struct TemplateTagArgs {
    /// Which build: NAME or NAME:TAG
    #[arg(value_name = "NAME[:TAG]")]
    pub target: String,
    /// New tags for it
    #[arg(required = true, value_name = "TAG")]
    pub tags: Vec<String>,
    /// Take the tags away from NAME instead
    #[arg(long)]
    pub remove: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Show the log of a build.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soulbox template logs web            # of its newest build
  soulbox template logs 0199f3c2 -f    # ids may be shortened while they are unique")]
pub(crate) struct TemplateLogsArgs {
    /// Id of a build, or name or id of a template
    pub build: String,
    /// Go on until the build ends
    #[arg(short, long)]
    pub follow: bool,
    /// For programs: one object per line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub server: ServerArgs,
}
