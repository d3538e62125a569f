//! Builds and manages templates.

use anyhow::Result;
use soulbox_client::model::templates::Template;

use crate::{
    args::{ServerArgs, TemplateCommand},
    context::{Server, unique},
    report::advice,
    suggest::did_you_mean,
};

mod build;
mod credentials;
mod follow;
mod inspect;
mod job;
mod lines;
mod logs;
mod ls;
mod manage;
mod prepare;
mod printer;
mod quick;
mod upload;

pub(super) async fn run(command: &TemplateCommand) -> Result<u8> {
    match command {
        TemplateCommand::Build(args) => build::run(args).await,
        TemplateCommand::FromImage(args) => quick::from_image(args).await,
        TemplateCommand::FromTar(args) => quick::from_tar(args).await,
        TemplateCommand::FromHost(args) => quick::from_host(args).await,
        TemplateCommand::Ls(args) => ls::run(args).await,
        TemplateCommand::Rm(args) => manage::remove(args).await,
        TemplateCommand::Inspect(args) => inspect::run(args).await,
        TemplateCommand::Tag(args) => manage::tag(args).await,
        TemplateCommand::Logs(args) => logs::run(args).await,
    }
}

/// The server and its templates.
async fn list(args: &ServerArgs) -> Result<(Server, Vec<Template>)> {
    let server = Server::connect(args)?;
    let templates = server
        .client
        .templates()
        .await
        .map_err(|error| server.explain(error))?;
    Ok((server, templates))
}

/// What is built on its first use waits for nothing until then.
fn status(template: &Template) -> &str {
    let never_built = template
        .build
        .bytes()
        .all(|digit| matches!(digit, b'0' | b'-'));
    if template.build_status == "waiting" && never_built {
        return "not built";
    }
    &template.build_status
}

/// By name, id, or the beginning of an id.
fn find<'a>(name: &str, templates: &'a [Template]) -> Result<&'a Template> {
    if let Some(found) = templates.iter().find(|one| one.is_called(name)) {
        return Ok(found);
    }
    let ids: Vec<String> = templates.iter().map(|one| one.id.clone()).collect();
    unique("template", "soulbox template ls", name, &ids)
        .ok()
        .and_then(|id| templates.iter().find(|one| one.id == id))
        .ok_or_else(|| {
            let names = templates
                .iter()
                .flat_map(|one| one.aliases.iter().chain(&one.names));
            let look = "`soulbox template ls` shows the templates";
            let hint = did_you_mean(name, names.map(String::as_str), look);
            advice(format!("there is no template {name}"), hint)
        })
}
