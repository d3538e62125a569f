//! The URL of a port, printed or opened.

use std::{process::Stdio, time::Duration};

use anyhow::Result;
use tokio::{process::Command, time::timeout};

use crate::{
    args::{OpenArgs, UrlArgs},
    context::Server,
    output,
    report::{advice, note},
};

/// Programs that open a URL with whatever the user prefers.
const OPENERS: [&str; 2] = ["xdg-open", "open"];
/// Some stay for as long as the browser does.
const OPEN_LIMIT: Duration = Duration::from_secs(5);
const LOOKUP_LIMIT: Duration = Duration::from_secs(2);

pub(super) async fn url(args: &UrlArgs) -> Result<u8> {
    print(args).await?;
    Ok(0)
}

pub(super) async fn open(args: &OpenArgs) -> Result<u8> {
    let url = print(&args.url).await?;
    for opener in OPENERS {
        let started = Command::new(opener)
            .arg(&url)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut opener) = started else { continue };
        match timeout(OPEN_LIMIT, opener.wait()).await {
            Ok(Ok(status)) if !status.success() => {}
            _ => return Ok(0),
        }
    }
    note("no browser could be opened here: open the URL yourself");
    Ok(0)
}

async fn print(args: &UrlArgs) -> Result<String> {
    let server = Server::connect(&args.server)?;
    let id = server.find(&args.sandbox).await?.listed.id;
    let Some(url) = server.client.port_url(&id, args.port) else {
        let message = "the server is known by its address, under which sandboxes have no names";
        let hint = format!(
            "`soulbox forward {id} {}` makes the port reachable here",
            args.port
        );
        return Err(advice(message, hint));
    };
    output::text(&output::printable(&url))?;
    let host = url.split("://").nth(1).unwrap_or_default();
    let asked = host.contains(':').then(|| host.to_owned());
    let asked = asked.unwrap_or_else(|| format!("{host}:443"));
    let found = timeout(LOOKUP_LIMIT, tokio::net::lookup_host(asked)).await;
    if !matches!(found, Ok(Ok(_))) {
        let host = host.split(':').next().unwrap_or_default();
        note(&format!(
            "note: the resolver of this machine does not know {host}; browsers and curl know \
             names under localhost without it, and `soulbox forward {id} {}` needs no names",
            args.port
        ));
    }
    Ok(url)
}
