//! What sandboxes use, drawn again and again.

use std::{io::IsTerminal, time::Duration};

use anyhow::Result;
use soulbox_client::{
    Envd,
    envd::process::{Command, Event},
};
use tokio::io::AsyncReadExt;

use super::{
    ps,
    start::{Started, try_start},
    stats,
};
use crate::{
    args::TopArgs,
    context::Server,
    interrupts::Interrupts,
    output, report,
    terminal::{self, Silence},
};

const INTERVAL: Duration = Duration::from_secs(2);
/// A sandbox that prints more has not run `ps`.
const MOST_OUTPUT: usize = 1 << 20;
const PS_LIMIT: Duration = Duration::from_secs(10);

pub(super) async fn run(args: &TopArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    let sandbox = match &args.sandbox {
        Some(name) => Some(server.enter(name, None).await?),
        None => None,
    };
    if args.once || !std::io::stdout().is_terminal() {
        let text = picture(&server, sandbox.as_ref()).await?;
        output::text(&text)?;
        return Ok(0);
    }
    let mut interrupts = Interrupts::listen()?;
    let _silence = Silence::of_keys();
    let mut keys = tokio::io::stdin();
    let mut key = [0; 1];
    loop {
        let drawing = async {
            draw(&picture(&server, sandbox.as_ref()).await?)?;
            tokio::time::sleep(INTERVAL).await;
            anyhow::Ok(())
        };
        tokio::select! {
            drawn = drawing => drawn?,
            _ = interrupts.next() => return Ok(0),
            read = keys.read(&mut key) => if !matches!(read, Ok(1..)) || key == *b"q" {
                return Ok(0);
            },
        }
    }
}

/// From the top left, as much as there is room for.
fn draw(text: &str) -> Result<()> {
    let size = terminal::size();
    let lines = text.lines().take(usize::from(size.rows.saturating_sub(1)));
    let width = usize::from(size.cols);
    let lines: Vec<String> = lines
        .map(|line| line.chars().take(width).collect())
        .collect();
    output::text(&format!("\x1b[H\x1b[J{}", lines.join("\r\n")))
}

async fn picture(server: &Server, sandbox: Option<&Envd>) -> Result<String> {
    match sandbox {
        None => stats::of_all(server).await,
        Some(envd) => processes(envd).await,
    }
}

/// By the sandbox's own `ps`: it knows those that were not started through envd.
async fn processes(envd: &Envd) -> Result<String> {
    let words = ["-eo", "pid,user,pcpu,rss,etime,args", "--sort=-pcpu"];
    let command = Command {
        program: "ps".to_owned(),
        arguments: words.map(str::to_owned).to_vec(),
        limit: Some(PS_LIMIT),
        ..Command::default()
    };
    let Started::Running(mut process) = try_start(envd, &command).await? else {
        report::note("the sandbox has no `ps`: these are the processes started through its agent");
        return ps::of(envd).await;
    };
    let mut text = Vec::new();
    while let Some(event) = process.next().await? {
        match event {
            Event::Stdout(bytes) if text.len() < MOST_OUTPUT => text.extend_from_slice(&bytes),
            Event::End(_) => break,
            _ => {}
        }
    }
    let shown = String::from_utf8_lossy(&text);
    let lines: Vec<String> = shown.lines().map(output::printable).collect();
    Ok(lines.join("\n"))
}
