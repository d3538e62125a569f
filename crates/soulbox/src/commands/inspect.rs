//! Things as the server shows them.

use anyhow::Result;
use serde_json::{Value, json};
use soulbox_client::{
    Error,
    model::{Snapshot, Volume, templates::Template},
};

use super::{snapshot, volume};
use crate::{
    args::InspectArgs,
    context::{Server, unique},
    output,
    report::{self, advice},
    suggest::did_you_mean,
};

pub(super) async fn run(args: &InspectArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    let all = Everything::list(&server).await?;
    let mut shown = Vec::new();
    let mut failed = false;
    for name in &args.names {
        match all.inspect(&server, name).await {
            Ok(value) => shown.push(value),
            Err(error) => {
                report::print(&error);
                failed = true;
            }
        }
    }
    output::json(&shown)?;
    Ok(u8::from(failed))
}

/// What a word may mean.
struct Everything {
    sandboxes: Vec<String>,
    templates: Vec<Template>,
    snapshots: Vec<Snapshot>,
    volumes: Vec<Volume>,
}

impl Everything {
    async fn list(server: &Server) -> Result<Self> {
        let client = &server.client;
        let (templates, snapshots, volumes) =
            tokio::join!(client.templates(), client.snapshots(None), client.volumes());
        let explain = |error: Error| server.explain(error);
        Ok(Self {
            sandboxes: server.ids().await?,
            templates: templates.map_err(explain)?,
            snapshots: snapshots.map_err(explain)?,
            // A server without volumes says so; that is no reason to show nothing else.
            volumes: volumes.unwrap_or_default(),
        })
    }

    async fn inspect(&self, server: &Server, name: &str) -> Result<Value> {
        if let Ok(id) = unique("sandbox", "soulbox ls", name, &self.sandboxes) {
            let found = server.client.inspect_sandbox(id).await;
            return Ok(without_tokens(
                found.map_err(|error| server.explain(error))?,
            ));
        }
        if let Some(template) = self.templates.iter().find(|one| one.is_called(name)) {
            return self.template(server, template).await;
        }
        if let Some(found) = self
            .snapshots
            .iter()
            .find(|one| snapshot::is_called(one, name))
        {
            return Ok(serde_json::to_value(found)?);
        }
        if let Ok(found) = volume::find(name, &self.volumes) {
            let found = server.client.inspect_volume(&found.id).await;
            return Ok(without_tokens(
                found.map_err(|error| server.explain(error))?,
            ));
        }
        Err(self.nothing(server, name).await)
    }

    async fn template(&self, server: &Server, template: &Template) -> Result<Value> {
        let mut value = serde_json::to_value(template)?;
        match server.client.template(&template.id).await {
            Ok(detail) => value["builds"] = json!(detail.builds),
            // One that was never built through the interface, such as base.
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(server.explain(error)),
        }
        Ok(value)
    }

    /// Of a whole id of a sandbox that has ended the server knows when and why.
    async fn nothing(&self, server: &Server, name: &str) -> anyhow::Error {
        if let Some(ended) = server.why_ended(name).await {
            return ended;
        }
        let templates = self.templates.iter().flat_map(|one| &one.aliases);
        let volumes = self.volumes.iter().map(|one| &one.name);
        let sandboxes = self.sandboxes.iter();
        let candidates = templates.chain(volumes).chain(sandboxes);
        let look = "`soulbox ls`, `soulbox template ls`, `soulbox snapshot ls` and `soulbox volume \
                    ls` show what there is";
        let hint = did_you_mean(name, candidates.map(String::as_str), look);
        advice(
            format!("there is no sandbox, template, snapshot or volume {name}"),
            hint,
        )
    }
}

/// What is shown may be pasted anywhere.
pub(super) fn without_tokens(mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|name, _| !name.to_ascii_lowercase().ends_with("token"));
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_token_is_shown() {
        let shown = without_tokens(json!({
            "sandboxID": "i1", "envdAccessToken": "x", "trafficAccessToken": "y", "token": "z",
        }));
        assert_eq!(shown, json!({"sandboxID": "i1"}));
    }
}
