use anyhow::Result;
use soulbox_client::{Envd, envd::process::ProcessInfo};

use super::ls;
use crate::{
    args::{ListArgs, ProcessesArgs},
    context::Server,
    output::{self, Columns, cell},
    report::note,
};

pub(super) async fn run(args: &ProcessesArgs) -> Result<u8> {
    let Some(name) = &args.sandbox else {
        return sandboxes(args).await;
    };
    let server = Server::connect(&args.server)?;
    let envd = server.enter(name, None).await?;
    if args.json {
        output::json(&sorted(&envd).await?)?;
    } else {
        output::text(&of(&envd).await?)?;
    }
    Ok(0)
}

/// What `docker ps` is.
async fn sandboxes(args: &ProcessesArgs) -> Result<u8> {
    let list = ListArgs {
        quiet: args.quiet,
        broken: false,
        json: args.json,
        server: args.server.clone(),
    };
    let code = ls::run(&list).await?;
    if !args.quiet && !args.json {
        note("these are the sandboxes; `soulbox ps SANDBOX` lists the processes in one");
    }
    Ok(code)
}

async fn sorted(envd: &Envd) -> Result<Vec<ProcessInfo>> {
    let mut processes = envd.processes().await?;
    processes.sort_by_key(|process| process.pid);
    Ok(processes)
}

/// As a table.
pub(super) async fn of(envd: &Envd) -> Result<String> {
    let mut columns = Columns::new(&["PID", "TAG", "FOLDER", "COMMAND"]).right_aligned(&[0]);
    for process in &sorted(envd).await? {
        let words = std::iter::once(&process.config.cmd).chain(&process.config.args);
        let line: Vec<String> = words.map(|word| quoted(word)).collect();
        columns.row(vec![
            cell(process.pid.to_string()),
            cell(process.tag.as_deref().unwrap_or("-")),
            cell(process.config.cwd.as_deref().unwrap_or("-")),
            cell(line.join(" ")),
        ]);
    }
    Ok(columns.render())
}

/// As one would type it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_only_where_a_shell_needs_it() {
        assert_eq!(quoted("/bin/bash"), "/bin/bash");
        assert_eq!(quoted("echo hi"), "'echo hi'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
