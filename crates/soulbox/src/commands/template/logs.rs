use anyhow::Result;
use soulbox_client::{
    Client,
    model::templates::{RequestedBuild, Template},
};
use tokio::time::sleep;

use super::{
    follow::{POLL, Reader},
    printer,
};
use crate::{args::TemplateLogsArgs, context::unique, output};

pub(super) async fn run(args: &TemplateLogsArgs) -> Result<u8> {
    let (server, templates) = super::list(&args.server).await?;
    let build = find(&server.client, &args.build, &templates).await?;
    let mut reader = Reader {
        client: &server.client,
        build: &build,
        offset: 0,
    };
    loop {
        let page = reader.page().await?;
        for entry in &page.log_entries {
            if args.json {
                output::json_line(entry)?;
            } else {
                output::text(&printer::plain(entry))?;
            }
        }
        if !page.log_entries.is_empty() {
            continue;
        }
        let has_ended = matches!(page.status.as_str(), "ready" | "error");
        if has_ended || !args.follow {
            return Ok(0);
        }
        sleep(POLL).await;
    }
}

/// A build by its id, or the newest one of a template.
async fn find(client: &Client, name: &str, templates: &[Template]) -> Result<RequestedBuild> {
    let of = |template: &str, build: &str| RequestedBuild {
        template: template.to_owned(),
        build: build.to_owned(),
        names: Vec::new(),
        tags: Vec::new(),
    };
    if let Some(template) = templates.iter().find(|one| one.is_called(name)) {
        let newest = match client.template(&template.id).await {
            Ok(detail) => {
                let newest = detail
                    .builds
                    .into_iter()
                    .max_by(|one, other| one.created_at.cmp(&other.created_at));
                newest.map(|build| build.id)
            }
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error.into()),
        };
        return Ok(of(
            &template.id,
            &newest.unwrap_or_else(|| template.build.clone()),
        ));
    }
    let mut owners = Vec::new();
    for template in templates {
        match client.template(&template.id).await {
            Ok(detail) => {
                let builds = detail.builds.into_iter();
                owners.extend(builds.map(|build| (build.id, template.id.clone())));
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
    }
    let ids: Vec<String> = owners.iter().map(|(build, _)| build.clone()).collect();
    let id = unique("template or build", "soulbox template ls", name, &ids)?;
    let owner = owners.iter().find(|(build, _)| build == id);
    Ok(of(owner.map_or("", |(_, template)| template), id))
}
