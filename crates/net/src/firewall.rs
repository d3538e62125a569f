//! The one nftables table: put in place as a whole. Only the elements of its sets change, for
//! sandboxes that have rules of their own.

mod conflict;
mod counters;
mod rules;
mod sets;
mod watch;

use std::process::{Output, Stdio};
use std::time::Duration;

use soulbox_sys::find_program as find;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

pub(crate) use conflict::warnings;
pub(crate) use counters::traffic;
pub use counters::{Counted, Traffic};
pub(crate) use rules::{Rules, is_closed};
pub(crate) use sets::change;
pub(crate) use watch::Watch;

use crate::Error;
use crate::error::Doing;

const TIME: Duration = Duration::from_secs(10);
/// The first rules make the kernel load its modules one after another, from a disk that may be slow.
const WITH_MODULES: Duration = Duration::from_mins(1);

/// Replaces the table in one transaction: at no moment is there a packet without rules.
pub(crate) async fn apply(rules: &Rules<'_>) -> Result<(), Error> {
    let script = rules.to_string();
    run_within(WITH_MODULES, "nft", &["-f", "-"], script.as_bytes())
        .await
        .map(drop)
}

/// One transaction: all of it or nothing.
pub(crate) async fn run_script(script: &str) -> Result<(), Error> {
    run("nft", &["-f", "-"], script.as_bytes()).await.map(drop)
}

/// Whether the table is there. An answer that cannot be had counts as no: putting it in place once
/// more does no harm.
pub(crate) async fn is_applied(table: &str) -> bool {
    run("nft", &["list", "table", "inet", table], &[])
        .await
        .is_ok()
}

/// The names of all tables of the family that ours are of.
pub(crate) async fn tables() -> Result<Vec<String>, Error> {
    let output = run("nft", &["list", "tables", "inet"], &[]).await?;
    let names = String::from_utf8_lossy(&output.stdout);
    let name = |line: &str| line.strip_prefix("table inet ").map(str::to_owned);
    Ok(names.lines().filter_map(name).collect())
}

/// Removes the table; one that does not exist is no error.
pub(crate) async fn remove(table: &str) -> Result<(), Error> {
    // Adding first makes deleting safe whether it was there or not.
    let script = format!("add table inet {table}\ndelete table inet {table}\n");
    run_script(&script).await
}

async fn run(program: &str, arguments: &[&str], input: &[u8]) -> Result<Output, Error> {
    run_within(TIME, program, arguments, input).await
}

async fn run_within(
    limit: Duration,
    program: &str,
    arguments: &[&str],
    input: &[u8],
) -> Result<Output, Error> {
    let doing = || format!("running {program}");
    let mut child = Command::new(find(program).ok_or(Error::NftMissing)?)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .doing(doing)?;
    let talk = async {
        if let Some(mut stdin) = child.stdin.take() {
            // A program that ends early says why on its standard error.
            stdin.write_all(input).await.ok();
        }
        child.wait_with_output().await
    };
    let output = timeout(limit, talk)
        .await
        .map_err(|_| Error::TimedOut {
            doing: "a firewall command",
            seconds: limit.as_secs(),
        })?
        .doing(doing)?;
    if output.status.success() {
        return Ok(output);
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(Error::Firewall(
        complaint.lines().take(4).collect::<Vec<_>>().join(" | "),
    ))
}
