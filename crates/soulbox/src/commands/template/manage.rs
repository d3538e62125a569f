//! Deleting and tagging.

use anyhow::Result;

use crate::{
    args::{TemplateRemoveArgs, TemplateTagArgs},
    context::Server,
    output,
    report::{self, advice},
    suggest::did_you_mean,
};

pub(super) async fn remove(args: &TemplateRemoveArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    let mut failed = false;
    for name in &args.templates {
        match server.client.delete_template(name).await {
            Ok(true) => output::text(&output::printable(name))?,
            Ok(false) => {
                let templates = server.client.templates().await.unwrap_or_default();
                let names = templates
                    .iter()
                    .flat_map(|one| one.aliases.iter().chain(&one.names));
                let look = "`soulbox template ls` shows the templates";
                let hint = did_you_mean(name, names.map(String::as_str), look);
                report::print(&advice(format!("there is no template {name}"), hint));
                failed = true;
            }
            Err(error) => {
                report::print(&server.explain(error).context(format!("template {name}")));
                failed = true;
            }
        }
    }
    Ok(u8::from(failed))
}

pub(super) async fn tag(args: &TemplateTagArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    let done = if args.remove {
        server.client.remove_tags(&args.target, &args.tags).await
    } else {
        server.client.assign_tags(&args.target, &args.tags).await
    };
    done.map_err(|error| server.explain(error))?;
    Ok(0)
}
