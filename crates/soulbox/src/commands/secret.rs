//! Values that the server keeps sealed. They come from standard input or a prompt, never from an
//! argument.

use std::io::{self, BufRead, IsTerminal, Read, Write};

use anyhow::{Context, Result};
use jiff::Timestamp;
use soulbox_types::Secret;

use super::each;
use crate::{
    args::{SecretCommand, SecretCreateArgs, SecretListArgs, SecretRemoveArgs},
    context::Server,
    output::{self, Columns, cell, units},
    report::advice,
    suggest::did_you_mean,
    terminal::Silence,
};

/// More than the server takes.
const LONGEST: u64 = 1 << 20;

pub(super) async fn run(command: &SecretCommand) -> Result<u8> {
    match command {
        SecretCommand::Create(args) => create(args).await,
        SecretCommand::Ls(args) => list(args).await,
        SecretCommand::Rm(args) => remove(args).await,
    }
}

async fn create(args: &SecretCreateArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    let name = args.name.clone();
    let value = tokio::task::spawn_blocking(move || read_value(&name)).await??;
    let kept = if args.replace {
        server.client.update_secret(&args.name, &value).await
    } else {
        let metadata = args.metadata.iter().cloned().collect();
        let client = &server.client;
        client.create_secret(&args.name, &value, &metadata).await
    };
    let kept = kept.map_err(|error| {
        let taken = !args.replace && error.is_conflict();
        let error = server.explain(error);
        if taken {
            advice(format!("{error:#}"), "--replace gives it another value")
        } else {
            error
        }
    })?;
    if args.json {
        output::json(&kept)?;
    } else {
        output::text(&output::printable(&kept.id))?;
    }
    Ok(0)
}

fn read_value(name: &str) -> Result<Secret> {
    let stdin = io::stdin();
    let mut text = String::new();
    if stdin.is_terminal() {
        let mut err = io::stderr();
        write!(err, "value of {name} (not shown): ").and_then(|()| err.flush())?;
        {
            let _silence = Silence::enter()?;
            stdin.lock().take(LONGEST).read_line(&mut text)?;
        }
        writeln!(err)?;
    } else {
        let read = stdin.lock().take(LONGEST).read_to_string(&mut text);
        read.context("the value on standard input")?;
    }
    let value = text.strip_suffix('\n').unwrap_or(&text);
    let value = value.strip_suffix('\r').unwrap_or(value);
    if value.is_empty() {
        let hint = format!("for example: soulbox secret create {name} < FILE");
        return Err(advice("the secret has no value", hint));
    }
    Ok(Secret::new(value))
}

async fn list(args: &SecretListArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    let secrets = server.client.secrets().await;
    let secrets = secrets.map_err(|error| server.explain(error))?;
    if args.json {
        output::json(&secrets)?;
    } else if args.quiet {
        for secret in &secrets {
            output::text(&output::printable(&secret.name))?;
        }
    } else {
        let now = Timestamp::now();
        let mut columns = Columns::new(&["NAME", "SECRET", "VERSION", "CREATED", "UPDATED"]);
        for secret in &secrets {
            columns.row(vec![
                cell(&secret.name),
                cell(&secret.id),
                cell(secret.current_version.to_string()),
                cell(units::ago(&secret.created_at, now)),
                cell(units::ago(&secret.updated_at, now)),
            ]);
        }
        columns.print()?;
    }
    Ok(0)
}

async fn remove(args: &SecretRemoveArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    each("secret", &args.secrets, async |name| {
        if server.client.delete_secret(name).await? {
            return Ok(name.to_owned());
        }
        let known = server.client.secrets().await.unwrap_or_default();
        let names = known.iter().map(|one| one.name.as_str());
        let hint = did_you_mean(name, names, "`soulbox secret ls` shows the secrets");
        Err(advice(format!("there is no secret {name}"), hint))
    })
    .await
}
