//! Servers that the user has logged in to.

use std::{fmt::Write, io, path::PathBuf};

use anyhow::{Context as _, Result};
use serde_json::json;
use soulbox_client::{
    Client, Config, Error,
    config::{BaseUrl, Source},
    contexts::{self, Context, Contexts, is_name},
    presented_certificates,
};
use soulbox_trust::fingerprint;
use soulbox_types::Secret;

use crate::{
    args::{ContextCommand, LoginArgs, LogoutArgs},
    ask,
    context::variable,
    output::{self, Columns, cell},
    report::{advice, note},
};

/// What is looked at before the current context.
const OVERRIDING: [&str; 7] = [
    "SOULBOX_API_URL",
    "SOULBOX_API_KEY",
    "SOULBOX_CONTEXT",
    "E2B_API_URL",
    "E2B_API_KEY",
    "E2B_DOMAIN",
    "SOULBOX_DATA_DIR",
];

pub(super) async fn login(args: &LoginArgs) -> Result<u8> {
    let url: BaseUrl = args.url.parse().map_err(|error| {
        let hint = "an address looks like https://api.sandboxes.example.com";
        advice(format!("{error}"), hint)
    })?;
    let (host, _) = url.host_and_port();
    let name = match &args.name {
        Some(name) => name.clone(),
        None => url.domain().unwrap_or(&host).replace(':', "-"),
    };
    if !is_name(&name) {
        let hint = "letters, digits, dots, dashes and underscores; choose another with --name";
        return Err(advice(
            format!("{name:?} cannot be the name of a context"),
            hint,
        ));
    }
    let folder = folder()?;
    let mut contexts = Contexts::load(&folder).with_context(|| unreadable(&folder))?;
    check_free(&contexts, &name, &url)?;
    let ca = if url.is_https() {
        authority(args, &url).await?
    } else {
        check_plain(args, &host)?;
        None
    };
    let api_key = match &args.api_key_file {
        Some(path) => ask::key_from(path)?,
        None => ask::key(&format!("API key for {url}: ")).await?,
    };
    let context = Context {
        api_url: url.to_string(),
        sandbox_url: None,
        api_key,
        ca,
    };
    try_key(&url, &context).await?;

    contexts.contexts.insert(name.clone(), context);
    contexts.current = Some(name.clone());
    contexts
        .save(&folder)
        .with_context(|| unreadable(&folder))?;
    let used = match OVERRIDING.into_iter().find(|name| variable(name).is_some()) {
        None => "and used from now on".to_owned(),
        Some(set) => format!(
            "and used where {set} is not set, as it is here: `unset {set}`, or say --context {name}"
        ),
    };
    note(&format!(
        "logged in to {url}; it is the context {name:?} {used}"
    ));
    Ok(0)
}

/// The key and the address of another server would be gone.
fn check_free(contexts: &Contexts, name: &str, url: &BaseUrl) -> Result<()> {
    match contexts.contexts.get(name) {
        Some(other) if other.api_url != url.to_string() => Err(advice(
            format!(
                "the context {name:?} is there already, for {}",
                other.api_url
            ),
            format!("choose another with --name, or remove it: soulbox context rm {name}"),
        )),
        _ => Ok(()),
    }
}

fn check_plain(args: &LoginArgs, host: &str) -> Result<()> {
    let is_here = host == "localhost"
        || host.ends_with(".localhost")
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback());
    if is_here || args.allow_http {
        return Ok(());
    }
    let hint = "use the server's https address; or say --allow-http on a network that you trust";
    Err(advice("the key would be sent without encryption", hint))
}

/// `None`: the system trusts the server already.
async fn authority(args: &LoginArgs, url: &BaseUrl) -> Result<Option<String>> {
    if let Some(path) = &args.ca {
        let pem = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        if fingerprint(&pem).is_none() {
            let hint = "the server has it in its data folder: tls/ca.pem";
            return Err(advice(
                format!("{} has no certificate", path.display()),
                hint,
            ));
        }
        return Ok(Some(pem));
    }
    if args.ca_fingerprint.is_none() && is_trusted(url).await? {
        return Ok(None);
    }
    let certificates = presented_certificates(url)
        .await
        .with_context(|| format!("cannot connect to {url}"))?;
    // The authority is the last that it sends; a server that sends one alone is not ours.
    let Some(der) = certificates.get(1..).and_then(<[_]>::last) else {
        let hint = "get the certificate of its authority and name it with --ca FILE";
        return Err(advice(
            "the server's certificate is not trusted here, and it sends no authority",
            hint,
        ));
    };
    let pem = pem(der);
    let found = fingerprint(&pem).context("the server's certificate cannot be read")?;
    if let Some(expected) = &args.ca_fingerprint {
        if plain(expected) != plain(&found) {
            let hint = "if the server is yours, compare with `soulbox trust --dry-run` on its machine; if \
                        not, somebody may be in between";
            return Err(advice(
                format!("the CA of {url} has another fingerprint: {found}"),
                hint,
            ));
        }
        return Ok(Some(pem));
    }
    note(&format!(
        "{url} has a certificate authority of its own, which this machine does not trust:"
    ));
    note(&format!("  SHA-256 {found}"));
    note("Compare it with what `soulbox trust --dry-run` shows on the server's machine.");
    match ask::yes("Is it the same?")? {
        Some(true) => Ok(Some(pem)),
        Some(false) => Err(advice("not logged in", "nothing was sent to that server")),
        None => Err(advice(
            "nobody is here to compare the fingerprint",
            format!("compare it yourself and say --ca-fingerprint {found}"),
        )),
    }
}

/// Whether the system's authorities, or those in SSL_CERT_FILE, vouch for it. No key is sent.
async fn is_trusted(url: &BaseUrl) -> Result<bool> {
    let roots = variable("SSL_CERT_FILE").map(PathBuf::from);
    let client = Client::new(&config(url, Secret::new(""), None), roots);
    match client.health().await {
        Err(Error::Tls { .. }) => Ok(false),
        Err(error @ (Error::Unreachable { .. } | Error::Timeout { .. } | Error::Roots(_))) => {
            Err(error.into())
        }
        _ => Ok(true),
    }
}

async fn try_key(url: &BaseUrl, context: &Context) -> Result<()> {
    let file = match &context.ca {
        Some(ca) => {
            let mut file = tempfile::NamedTempFile::new()?;
            io::Write::write_all(&mut file, ca.as_bytes())?;
            Some(file)
        }
        None => None,
    };
    let roots = file.as_ref().map(|file| file.path().to_owned());
    let roots = roots.or_else(|| variable("SSL_CERT_FILE").map(PathBuf::from));
    let client = Client::new(&config(url, context.api_key.clone(), None), roots);
    match client.list_newest(1).await {
        Ok(_) => Ok(()),
        Err(Error::Api(refused)) if refused.status == 401 => {
            let hint = "`soulbox key create NAME` on the server's machine makes one";
            Err(advice(format!("{url} refuses this API key"), hint))
        }
        Err(error) => Err(error.into()),
    }
}

fn config(url: &BaseUrl, api_key: Secret, ca: Option<PathBuf>) -> Config {
    Config {
        api_url: url.clone(),
        sandbox_url: url.clone(),
        api_key,
        key_source: Source::Default,
        ca,
    }
}

pub(super) fn logout(args: &LogoutArgs) -> Result<u8> {
    let folder = folder()?;
    let contexts = Contexts::load(&folder).with_context(|| unreadable(&folder))?;
    let Some(name) = args.name.clone().or_else(|| contexts.current.clone()) else {
        return Err(advice(
            "there is no current context",
            "`soulbox context ls` shows those that there are",
        ));
    };
    remove(contexts, &[name])
}

pub(super) fn context(command: &ContextCommand) -> Result<u8> {
    let folder = folder()?;
    let mut contexts = Contexts::load(&folder).with_context(|| unreadable(&folder))?;
    match command {
        ContextCommand::Ls(args) if args.json => output::json(&listed(&contexts))?,
        ContextCommand::Ls(_) => table(&contexts).print()?,
        ContextCommand::Use { name } => {
            find(&contexts, Some(name))?;
            contexts.current = Some(name.clone());
            contexts
                .save(&folder)
                .with_context(|| unreadable(&folder))?;
        }
        ContextCommand::Show(args) => {
            let (name, context) = find(&contexts, args.name.as_deref())?;
            output::json(&shown(name, context, &contexts))?;
        }
        ContextCommand::Env(args) => {
            let (name, context) = find(&contexts, args.name.as_deref())?;
            output::text(environment(&folder, name, context)?.trim_end())?;
        }
        ContextCommand::Rm { names } => return remove(contexts, names),
    }
    Ok(0)
}

fn remove(mut contexts: Contexts, names: &[String]) -> Result<u8> {
    let folder = folder()?;
    for name in names {
        find(&contexts, Some(name))?;
        contexts
            .remove(&folder, name)
            .with_context(|| unreadable(&folder))?;
        note(&format!("forgot {name}"));
    }
    Ok(0)
}

fn find<'a>(contexts: &'a Contexts, name: Option<&str>) -> Result<(&'a str, &'a Context)> {
    contexts.find(name).ok_or_else(|| match name {
        Some(name) => advice(
            format!("there is no context {name}"),
            "`soulbox context ls` shows those that there are, `soulbox login URL` makes one",
        ),
        None => advice(
            "there is no current context",
            "`soulbox context use NAME` chooses one",
        ),
    })
}

fn listed(contexts: &Contexts) -> Vec<serde_json::Value> {
    let each = contexts.contexts.iter();
    each.map(|(name, context)| shown(name, context, contexts))
        .collect()
}

fn shown(name: &str, context: &Context, contexts: &Contexts) -> serde_json::Value {
    json!({
        "name": name,
        "current": contexts.current.as_deref() == Some(name),
        "apiUrl": context.api_url,
        "apiKey": masked(&context.api_key),
        "caFingerprint": context.ca.as_deref().and_then(fingerprint),
    })
}

fn table(contexts: &Contexts) -> Columns {
    let mut columns = Columns::new(&["", "NAME", "SERVER", "KEY", "CA"]);
    for (name, context) in &contexts.contexts {
        let current = contexts.current.as_deref() == Some(name);
        columns.row(vec![
            cell(if current { "*" } else { "" }),
            cell(name),
            cell(&context.api_url),
            cell(masked(&context.api_key)),
            cell(if context.ca.is_some() {
                "its own"
            } else {
                "the system's"
            }),
        ]);
    }
    columns
}

fn masked(key: &Secret) -> String {
    let start: String = key.expose().chars().take(6).collect();
    format!("{start}…")
}

/// As `env.tls` on the server's machine.
fn environment(folder: &std::path::Path, name: &str, context: &Context) -> Result<String> {
    let url: BaseUrl = context.api_url.parse()?;
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        // Writing into a String cannot fail.
        writeln!(text, "export {name}='{}'", value.replace('\'', r"'\''")).unwrap_or_default();
    };
    line("E2B_API_KEY", context.api_key.expose());
    let (_, port) = url.host_and_port();
    let urls = ["E2B_API_URL", "E2B_SANDBOX_URL", "E2B_VOLUME_API_URL"];
    let by_domain = url.domain().filter(|_| url.is_https());
    match by_domain {
        Some(domain) if port == 443 => line("E2B_DOMAIN", domain),
        Some(domain) => line("E2B_DOMAIN", &format!("{domain}:{port}")),
        None => urls.iter().for_each(|name| line(name, &context.api_url)),
    }
    if context.ca.is_some() {
        let ca = contexts::ca_file(folder, name);
        line("NODE_EXTRA_CA_CERTS", &ca.to_string_lossy());
        let bundle = bundle(folder, name, context)?;
        for name in ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"] {
            line(name, &bundle.to_string_lossy());
        }
    }
    let unset = if by_domain.is_some() {
        urls.join(" ")
    } else {
        "E2B_DOMAIN".to_owned()
    };
    writeln!(text, "unset {unset}").unwrap_or_default();
    Ok(text)
}

/// The variables replace a client's roots: the system's must be in the file too.
fn bundle(folder: &std::path::Path, name: &str, context: &Context) -> Result<PathBuf> {
    let path = folder.join(format!("{name}.bundle.pem"));
    let system = soulbox_client::system_roots().unwrap_or_default();
    let text = format!("{system}\n{}", context.ca.as_deref().unwrap_or_default());
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

fn folder() -> Result<PathBuf> {
    contexts::user_folder(variable).ok_or_else(|| {
        advice(
            "there is no place for contexts: HOME is not set",
            "set HOME or XDG_CONFIG_HOME",
        )
    })
}

fn unreadable(folder: &std::path::Path) -> String {
    format!("the contexts in {} cannot be used", folder.display())
}

fn pem(der: &[u8]) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let body = STANDARD.encode(der);
    let lines: Vec<&str> = body
        .as_bytes()
        .chunks(64)
        .map(|line| std::str::from_utf8(line).unwrap_or_default())
        .collect();
    format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        lines.join("\n")
    )
}

/// Written with colons, blanks or nothing in between.
fn plain(fingerprint: &str) -> String {
    let digits = fingerprint.trim().trim_start_matches("sha256:").chars();
    digits
        .filter(char::is_ascii_hexdigit)
        .collect::<String>()
        .to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_may_be_written_in_several_ways() {
        for text in ["ab:cd:01", "ABCD01", "sha256:ab cd 01"] {
            assert_eq!(plain(text), "ABCD01");
        }
    }

    #[test]
    fn der_becomes_pem_with_the_same_fingerprint() {
        let text = pem(&[7; 100]);
        assert_eq!(text.lines().count(), 5);
        assert!(fingerprint(&text).is_some());
    }

    #[test]
    fn a_key_is_never_shown_whole() {
        assert_eq!(masked(&Secret::new("e2b_0123456789")), "e2b_01…");
    }
}
