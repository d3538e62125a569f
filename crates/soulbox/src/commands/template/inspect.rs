use std::collections::BTreeMap;

use anyhow::Result;
use jiff::Timestamp;
use serde_json::json;
use soulbox_client::model::templates::{Template, TemplateBuild, TemplateDetail, TemplateTag};

use crate::{
    args::TemplateInspectArgs,
    output::{self, Columns, cell, state_cell, units},
};

pub(super) async fn run(args: &TemplateInspectArgs) -> Result<u8> {
    let (server, templates) = super::list(&args.server).await?;
    let template = super::find(&args.template, &templates)?;
    let detail = match server.client.template(&template.id).await {
        Ok(detail) => detail,
        // A template that was never built through the interface, such as base.
        Err(error) if error.is_not_found() => TemplateDetail {
            id: template.id.clone(),
            builds: Vec::new(),
            rest: BTreeMap::new(),
        },
        Err(error) => return Err(error.into()),
    };
    let tags = match server.client.template_tags(&template.id).await {
        Ok(tags) => tags,
        Err(error) if error.is_not_found() => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    if args.json {
        output::json(&json!({ "template": template, "builds": detail.builds, "tags": tags }))?;
    } else {
        show(template, &detail.builds, &tags)?;
    }
    Ok(0)
}

fn show(template: &Template, builds: &[TemplateBuild], tags: &[TemplateTag]) -> Result<()> {
    let now = Timestamp::now();
    let mut facts = Columns::new(&["TEMPLATE", &template.id]);
    let size = |mib: u32| units::bytes(u64::from(mib) << 20);
    let names = [template.aliases.clone(), template.names.clone()].concat();
    let mut seen: Vec<String> = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    for (name, value) in [
        ("names", seen.join(" ")),
        ("status", super::status(template).to_owned()),
        ("build", template.build.clone()),
        ("cpu", template.cpu_count.to_string()),
        ("memory", size(template.memory_mb)),
        (
            "disk",
            template.disk_size_mb.map_or_else(|| "-".to_owned(), size),
        ),
        ("created", units::ago(&template.created_at, now)),
        ("updated", units::ago(&template.updated_at, now)),
    ] {
        facts.row(vec![cell(name), cell(value)]);
    }
    facts.print()?;
    if !builds.is_empty() {
        output::text("")?;
        builds_table(builds, tags, now).print()?;
    }
    Ok(())
}

fn builds_table(builds: &[TemplateBuild], tags: &[TemplateTag], now: Timestamp) -> Columns {
    let mut columns = Columns::new(&["BUILD", "STATUS", "TAGS", "CPU", "MEMORY", "CREATED"]);
    for build in builds {
        let own: Vec<&str> = tags
            .iter()
            .filter(|tag| tag.build == build.id)
            .map(|tag| tag.tag.as_str())
            .collect();
        columns.row(vec![
            cell(&build.id),
            state_cell(&build.status),
            cell(own.join(" ")),
            cell(build.cpu_count.to_string()),
            cell(units::bytes(u64::from(build.memory_mb) << 20)),
            cell(units::ago(&build.created_at, now)),
        ]);
    }
    columns
}
