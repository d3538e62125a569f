//! SSH: the client of this machine, and the server that it speaks with, which is us.

use std::{
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use soulbox_client::contexts::user_folder;
use soulbox_ssh::{HostKey, Sandbox};
use tokio::io::{join, stdin, stdout};

use crate::{
    args::{ServerArgs, SshArgs, SshConfigArgs, SshProxyArgs},
    context::{Server, variable},
    interrupts::Interrupts,
    output,
    report::advice,
    sandbox::{LEASE_SECONDS, Lease},
};

/// So that a pattern can mean our hosts and no others.
const PREFIX: &str = "soulbox-";
const KNOWN_HOSTS: &str = "known_hosts";

/// Becomes ssh: nothing of ours stands between it and the terminal.
pub(super) async fn ssh(args: &SshArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    let id = server.find(&args.sandbox).await?.listed.id;
    let folder = folder()?;
    let mut ssh = Command::new("ssh");
    // The one that is started below must reach the same server, and the key must be in no list of
    // processes.
    for (name, value) in server.environment() {
        ssh.env(name, value);
    }
    ssh.env_remove("SOULBOX_DATA_DIR");
    for (name, value) in settings(&folder, &ServerArgs::default())? {
        ssh.arg("-o").arg(format!("{name}={value}"));
    }
    ssh.args(["-o", "LogLevel=ERROR", "-l", &args.user]);
    for option in &args.options {
        ssh.args(["-o", option]);
    }
    for forward in &args.forwards {
        ssh.args(["-L", forward]);
    }
    if args.tty {
        ssh.arg("-t");
    }
    ssh.arg(format!("{PREFIX}{id}")).arg("--");
    ssh.args(&args.command);
    let error = ssh.exec();
    if error.kind() == std::io::ErrorKind::NotFound {
        let hint = "install it (Debian: openssh-client), or use `soulbox exec` and `soulbox shell`";
        return Err(advice("the program ssh was not found", hint));
    }
    Err(error).context("cannot start ssh")
}

pub(super) async fn proxy(args: &SshProxyArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    let name = args.sandbox.strip_prefix(PREFIX).unwrap_or(&args.sandbox);
    let detail = server.find(name).await?;
    let sandbox = Sandbox {
        client: server.client.clone(),
        id: detail.listed.id,
        access_token: detail.envd_access_token,
    };
    // As with `soulbox shell`: it wakes the sandbox, which lives for as long as somebody is there.
    server.client.connect(&sandbox.id, LEASE_SECONDS).await?;
    let _lease = Lease::hold(&server.client, &sandbox.id);
    let folder = folder()?;
    let key = tokio::task::spawn_blocking(move || HostKey::load_or_make(&folder)).await??;
    let mut interrupts = Interrupts::listen()?;
    let stop = async {
        interrupts.next().await;
    };
    match soulbox_ssh::serve(join(stdin(), stdout()), sandbox, &key, stop).await {
        Ok(()) => Ok(0),
        Err(error) if soulbox_ssh::is_end(&error) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

pub(super) async fn config(args: &SshConfigArgs) -> Result<u8> {
    let mut hosts = Vec::new();
    if args.sandboxes.is_empty() {
        hosts.push(format!("{PREFIX}*"));
    } else {
        let server = Server::connect(&args.server)?;
        for name in &args.sandboxes {
            let id = server.find(name).await?.listed.id;
            hosts.push(format!("{PREFIX}{}", output::printable(&id)));
        }
    }
    let mut lines = vec![
        format!("Host {}", hosts.join(" ")),
        format!("    User {}", args.user),
    ];
    for (name, value) in settings(&folder()?, &args.server)? {
        lines.push(format!("    {name} {value}"));
    }
    output::text(&lines.join("\n"))?;
    Ok(0)
}

/// Where this user's settings of ours are.
fn folder() -> Result<PathBuf> {
    match user_folder(variable) {
        Some(folder) => Ok(folder),
        None => Err(advice(
            "there is no place for the host key: HOME is not set",
            "set HOME or XDG_CONFIG_HOME",
        )),
    }
}

/// Options of ssh for all sandboxes.
fn settings(folder: &Path, server: &ServerArgs) -> Result<Vec<(&'static str, String)>> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = vec![quoted(text(&program)?), "ssh-proxy".to_owned()];
    if let Some(url) = &server.api_url {
        command.extend(["--api-url".to_owned(), quoted(url)]);
    }
    if let Some(data) = &server.data_dir {
        let data = std::path::absolute(data)?;
        command.extend(["--data-dir".to_owned(), quoted(text(&data)?)]);
    }
    if let Some(name) = &server.context {
        command.extend(["--context".to_owned(), quoted(name)]);
    }
    // What was written on the command line, which ssh does not change, nor check in old versions: a
    // link to `soulbox-$(…)` must not become a command.
    command.push("'%n'".to_owned());
    let known_hosts = folder.join(KNOWN_HOSTS);
    Ok(vec![
        ("ProxyCommand", command.join(" ")),
        ("UserKnownHostsFile", format!("\"{}\"", text(&known_hosts)?)),
        ("StrictHostKeyChecking", "accept-new".to_owned()),
        // All sandboxes have the one key of this user.
        ("HostKeyAlias", "soulbox".to_owned()),
        ("CheckHostIP", "no".to_owned()),
    ])
}

fn text(path: &Path) -> Result<&str> {
    let text = path.to_str().filter(|text| !text.contains(['"', '\n']));
    text.with_context(|| format!("ssh cannot be told of the path {}", path.display()))
}

/// For the shell that ssh starts, after ssh has replaced what follows a percent sign.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('%', "%%").replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_and_ssh_leave_what_is_quoted_as_it_is() {
        assert_eq!(quoted("/a b/100%/it's"), "'/a b/100%%/it'\\''s'");
        assert!(text(Path::new("/a\"b")).is_err());
    }

    #[test]
    fn the_server_that_was_named_is_written_down_and_its_key_is_not() {
        let server = ServerArgs {
            api_url: Some("http://127.0.0.1:3000".to_owned()),
            api_key: Some(soulbox_types::Secret::new("e2b_00ff")),
            data_dir: Some("/srv/x".into()),
            context: None,
        };
        let settings = settings(Path::new("/home/u/.config/soulbox"), &server).unwrap();
        let (_, command) = &settings[0];
        let expected = "ssh-proxy --api-url 'http://127.0.0.1:3000' --data-dir '/srv/x' '%n'";
        assert!(command.ends_with(expected), "{command}");
        assert!(!command.contains("e2b_"));
        assert_eq!(settings[1].1, "\"/home/u/.config/soulbox/known_hosts\"");
    }
}
