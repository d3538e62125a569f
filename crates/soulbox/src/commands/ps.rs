use anyhow::Result;

use crate::{
    args::ProcessesArgs,
    context::Server,
    output::{self, Columns, cell},
};

pub(super) async fn run(args: &ProcessesArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    let mut processes = server.enter(&args.sandbox, None).await?.processes().await?;
    processes.sort_by_key(|process| process.pid);
    if args.json {
        output::json(&processes)?;
        return Ok(0);
    }
    let mut columns = Columns::new(&["PID", "TAG", "FOLDER", "COMMAND"]).right_aligned(&[0]);
    for process in &processes {
        let words = std::iter::once(&process.config.cmd).chain(&process.config.args);
        let line: Vec<String> = words.map(|word| quoted(word)).collect();
        columns.row(vec![
            cell(process.pid.to_string()),
            cell(process.tag.as_deref().unwrap_or("-")),
            cell(process.config.cwd.as_deref().unwrap_or("-")),
            cell(line.join(" ")),
        ]);
    }
    columns.print()?;
    Ok(0)
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
