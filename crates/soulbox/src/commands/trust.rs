//! Makes this machine open the names of sandboxes.

use std::{
    net::{IpAddr, ToSocketAddrs},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use soulbox_client::{
    config::{BaseUrl, Flags, data_dir},
    contexts::{self, Contexts},
};
use soulbox_trust::{
    NAMES_FILE, Names, Only, Plan, Record, Undone, Wanted, asks, fingerprint, macos_script,
    resolves,
};

use crate::{
    args::{TrustArgs, TrustPart},
    ask,
    context::variable,
    output,
    report::{advice, note, warning},
};

const ROOT: &str = "/";

/// Everything in it blocks: it reads files, asks name servers and people, and runs programs.
pub(super) async fn run(args: TrustArgs) -> Result<u8> {
    tokio::task::spawn_blocking(move || act(&args)).await?
}

fn act(args: &TrustArgs) -> Result<u8> {
    if args.remove {
        return remove(args);
    }
    let (names, ca) = server(args)?;
    if args.target.is_some() {
        let dns = args.dns.or(names.dns.filter(|dns| !dns.ip().is_loopback()));
        output::text(macos_script(&names, ca.as_deref(), dns).trim_end())?;
        return Ok(0);
    }
    let root = Path::new(ROOT);
    let found = resolves(&names.probe());
    if let Some(record) = Record::of(root, &names.domain)? {
        let has_ca = ca.as_deref().is_none_or(|ca| record.has(ca));
        if has_ca && record.holds(root) && !found.is_empty() {
            note(&format!("this machine trusts *.{} already", names.domain));
            return Ok(0);
        }
        note(&format!(
            "what was done for *.{} before is undone first",
            names.domain
        ));
        if args.dry_run {
            return Ok(0);
        }
        check_root()?;
        consent(args, "Undo it?")?;
        tell(&record.undo(root)?);
        return act(args);
    }
    let plan = Plan::make(
        root,
        &Wanted {
            names: &names,
            ca: ca.as_deref(),
            only: args.only.map(|part| match part {
                TrustPart::Ca => Only::Ca,
                TrustPart::Names => Only::Names,
            }),
            resolved: &found,
        },
    )?;
    if let Some(fingerprint) = ca.as_deref().and_then(fingerprint) {
        output::text(&format!("CA of *.{}: SHA-256 {fingerprint}", names.domain))?;
    }
    if !plan.describe().is_empty() {
        output::text(&plan.describe())?;
    }
    if plan.parts.is_empty() {
        note("nothing to do");
        return Ok(0);
    }
    if args.dry_run {
        return Ok(0);
    }
    check_root()?;
    check_name_server(&names, &plan)?;
    consent(args, "Do this?")?;
    if let Err(error) = Record::carry_out(root, &names.domain, &plan) {
        return Err(anyhow::Error::from(error)
            .context("not everything was done; `soulbox trust --remove` undoes it"));
    }
    verify(args, &names)
}

/// What the server says of itself, and its CA.
fn server(args: &TrustArgs) -> Result<(Names, Option<String>)> {
    let flags = Flags {
        data_dir: args.data_dir.clone(),
        ..Flags::default()
    };
    let folder = data_dir(&flags, variable).join("tls");
    let has_folder = folder.join(NAMES_FILE).exists();
    let wants_context = args.context.is_some() || (args.data_dir.is_none() && !has_folder);
    if wants_context && let Some(found) = of_context(args)? {
        return Ok(found);
    }
    if !has_folder {
        let hint = "start `soulbox serve` with HTTPS first, name its folder with --data-dir, or log in to a \
                    server elsewhere with `soulbox login`";
        let message = format!(
            "no server has written down its names in {}",
            folder.display()
        );
        return Err(advice(message, hint));
    }
    let mut names = Names::read(&folder.join(NAMES_FILE))?;
    if args.dns.is_some() {
        names.dns = args.dns;
    }
    let ca = if names.local_ca {
        let path = folder.join("ca.pem");
        let pem = std::fs::read_to_string(&path);
        Some(pem.with_context(|| format!("cannot read {}", path.display()))?)
    } else {
        None
    };
    Ok((names, ca))
}

fn of_context(args: &TrustArgs) -> Result<Option<(Names, Option<String>)>> {
    let folder: Option<PathBuf> = contexts::user_folder(variable);
    let contexts = folder.map(|folder| Contexts::load(&folder)).transpose()?;
    let contexts = contexts.unwrap_or_default();
    let Some((name, context)) = contexts.find(args.context.as_deref()) else {
        return match &args.context {
            Some(name) => Err(advice(
                format!("there is no context {name}"),
                "`soulbox context ls` shows those that there are; under sudo it is root's: sudo -E keeps yours",
            )),
            None => Ok(None),
        };
    };
    let url: BaseUrl = context.api_url.parse()?;
    let (host, port) = url.host_and_port();
    let Some(domain) = url.domain().filter(|_| url.is_https()) else {
        let hint = "log in by its name: soulbox login https://api.DOMAIN";
        return Err(advice(
            format!("the context {name} has no domain: it is {url}"),
            hint,
        ));
    };
    let address = (host.as_str(), port)
        .to_socket_addrs()
        .with_context(|| format!("cannot find {host}"))?
        .map(|address| address.ip())
        .next()
        .with_context(|| format!("{host} has no address"))?;
    let names = Names::of(domain, port, address, args.dns, context.ca.is_some())?;
    Ok(Some((names, context.ca.clone())))
}

fn check_root() -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(advice(
        "only root may change this",
        "run it with sudo; --dry-run shows what it would do",
    ))
}

/// A resolver that is pointed to a server that does not answer would be worse than before.
fn check_name_server(names: &Names, plan: &Plan) -> Result<()> {
    let Some(dns) = plan.parts.iter().find_map(|part| part.relies_on) else {
        return Ok(());
    };
    let expected = match names.address {
        IpAddr::V4(address) => address,
        IpAddr::V6(_) => return Ok(()),
    };
    let hint = "is the server running? Its log says why it does not answer names (`--dns`)";
    match asks(dns, &names.probe()) {
        Ok(found) if found.contains(&expected) => Ok(()),
        Ok(found) => Err(advice(
            format!(
                "the name server {dns} answers {found:?} for *.{}, not {expected}",
                names.domain
            ),
            "another server may have that address: choose one with `serve --dns ADDRESS:53`",
        )),
        Err(error) => Err(advice(
            format!("the name server {dns} does not answer: {error}"),
            hint,
        )),
    }
}

fn consent(args: &TrustArgs, question: &str) -> Result<()> {
    if args.yes {
        return Ok(());
    }
    match ask::yes(question)? {
        Some(true) => Ok(()),
        Some(false) => Err(advice(
            "nothing was changed",
            "--dry-run shows it without asking",
        )),
        None => Err(advice("nobody is here to be asked", "say --yes")),
    }
}

fn verify(args: &TrustArgs, names: &Names) -> Result<u8> {
    if args.only == Some(TrustPart::Ca) {
        note("done");
        return Ok(0);
    }
    let probe = names.probe();
    let found = resolves(&probe);
    if found.is_empty() {
        let hint = "`soulbox trust --remove` undoes it; docs/names.md has other ways";
        return Err(advice(
            format!("done, but this machine still does not find {probe}"),
            hint,
        ));
    }
    let port = match names.https_port {
        443 => String::new(),
        port => format!(":{port}"),
    };
    note(&format!(
        "done: curl, browsers and what else asks the system opens https://<port>-<sandbox>.{}{port}",
        names.domain
    ));
    note(&format!(
        "{}; Node and Python's httpx, requests and E2B's SDKs have roots of their own",
        next_step(args)
    ));
    Ok(0)
}

/// How those learn of the CA that have roots of their own.
fn next_step(args: &TrustArgs) -> String {
    if let Some(name) = &args.context {
        return format!("next: eval \"$(soulbox context env {name})\"");
    }
    let flags = Flags {
        data_dir: args.data_dir.clone(),
        ..Flags::default()
    };
    let file = data_dir(&flags, variable).join("env.tls");
    let file = file.display();
    format!("next: . {file} (as another user: eval \"$(sudo cat {file})\")")
}

fn remove(args: &TrustArgs) -> Result<u8> {
    let root = Path::new(ROOT);
    let mut records = Record::all(root)?;
    if args.data_dir.is_some() || args.context.is_some() {
        let (names, _) = server(args)?;
        records.retain(|record| record.domain == names.domain);
    }
    if records.is_empty() {
        note("nothing to undo");
        return Ok(0);
    }
    for record in &records {
        output::text(&format!("undo what was done for *.{}:", record.domain))?;
        for path in record.paths() {
            output::text(&format!("   {}", path.display()))?;
        }
    }
    if args.dry_run {
        return Ok(0);
    }
    check_root()?;
    consent(args, "Undo it?")?;
    for record in &records {
        tell(&record.undo(root)?);
    }
    note("undone");
    Ok(0)
}

fn tell(undone: &[Undone]) {
    for each in undone {
        match each {
            Undone::Restored(_) => {}
            Undone::Cut(path) => note(&format!(
                "{} was changed by others since: only our lines were taken out",
                path.display()
            )),
            Undone::Left(path) => warning(&format!(
                "{} was changed by others since and is left as it is",
                path.display()
            )),
        }
    }
}
