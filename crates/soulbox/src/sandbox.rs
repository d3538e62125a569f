//! A sandbox that belongs to a command: made for it, kept alive while it runs, ended with it.

use std::time::{Duration, Instant};

use anyhow::Result;
use soulbox_client::{
    Client, Envd, Error,
    model::{CreateSandbox, Resources, Sandbox, templates::Template},
};
use tokio::{task::JoinHandle, time::timeout};

use crate::{
    args::CreateArgs,
    context::Server,
    interrupts::Interrupts,
    option_names::as_options,
    report::{advice, note, warning},
    status_line::{StatusLine, time_left},
};

/// Without --timeout a sandbox lives as long as its command: its end is always this far away, and
/// moved again long before. Should this program be killed, the sandbox follows soon.
pub(crate) const LEASE_SECONDS: u32 = 300;
const RENEWAL: Duration = Duration::from_mins(1);
/// A creation takes milliseconds.
const LONG: Duration = Duration::from_secs(2);
/// Between two looks at a build.
const LOOK: Duration = Duration::from_secs(1);
/// The longest that the server builds one of its own templates.
const BUILD_LIMIT: Duration = Duration::from_hours(2);
const LOG_PAGE: usize = 100;
const MOST_LOG_PAGES: usize = 100;
/// How long Ctrl-C waits for a creation that is under way.
const ABANDON_LIMIT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct OwnSandbox {
    pub envd: Envd,
    client: Client,
    lease: Option<Lease>,
}

impl OwnSandbox {
    pub(crate) async fn create(
        server: &Server,
        args: &CreateArgs,
        user: Option<String>,
        interrupts: &mut Interrupts,
    ) -> Result<Self> {
        let sandbox = create(server, args, interrupts).await?;
        let client = server.client.clone();
        let lease = args
            .timeout
            .is_none()
            .then(|| Lease::hold(&client, &sandbox.id));
        let envd = client
            .envd(&sandbox.id, sandbox.envd_access_token)
            .as_user(user);
        Ok(Self {
            envd,
            client,
            lease,
        })
    }

    /// Ends it. A failure is printed, but does not change the command's own result.
    pub(crate) async fn discard(mut self) {
        self.lease.take();
        let id = self.envd.sandbox_id();
        if let Err(error) = self.client.kill(id).await {
            warning(&format!(
                "sandbox {id} could not be ended: {error}; it ends at its timeout"
            ));
        }
    }
}

/// Makes one. A template that is being built for its first use is waited for, with how far it is.
pub(crate) async fn create(
    server: &Server,
    args: &CreateArgs,
    interrupts: &mut Interrupts,
) -> Result<Sandbox> {
    let request = create_request(args);
    let first_use = FirstUse::watch(server, &args.template);
    tokio::pin!(first_use);
    let mut told = false;
    let started = Instant::now();
    loop {
        let (client, asked) = (server.client.clone(), request.clone());
        let mut creation = tokio::spawn(async move { client.create(&asked).await });
        let made = loop {
            tokio::select! {
                created = &mut creation => break created?,
                code = interrupts.next() => return abandon(server, creation, code).await,
                () = &mut first_use, if !told => told = true,
            }
        };
        match made {
            Ok(sandbox) => return Ok(sandbox),
            Err(Error::Api(refused))
                if refused.error_code.as_deref() == Some("template_building")
                    && started.elapsed() < BUILD_LIMIT => {}
            Err(error) => {
                let error = as_options(error);
                return Err(server.explain_template(error, &args.template).await);
            }
        }
    }
}

/// The first use of a built-in template builds it, which takes minutes: nobody should wait for that
/// without a word.
struct FirstUse;

impl FirstUse {
    /// Ends when there is nothing (more) to tell.
    async fn watch(server: &Server, name: &str) {
        tokio::time::sleep(LONG).await;
        let started = Instant::now();
        let mut line = StatusLine::new(false);
        let mut told = false;
        loop {
            // Should this fail, the creation's own answer tells more.
            let templates = server.client.templates().await.unwrap_or_default();
            let template = templates.iter().find(|one| one.is_called(name));
            let Some(template) = template.filter(|one| one.build_status == "building") else {
                return;
            };
            if !std::mem::replace(&mut told, true) {
                note(&format!(
                    "template {name} is being built for its first use, which takes minutes; \
                     `soulbox template logs -f {name}` shows how far it is; Ctrl-C leaves the build \
                     to go on"
                ));
            }
            if !line.is_wanted() {
                return;
            }
            let step = newest_step(server, template).await.unwrap_or_default();
            line.set(&format!("{step}{}", time_left(started.elapsed(), None)));
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// `[3/7] RUN …: ` of the build's log.
async fn newest_step(server: &Server, template: &Template) -> Option<String> {
    let detail = server.client.template(&template.id).await.ok()?;
    let build = detail.builds.iter().find(|one| one.status == "building")?;
    let mut offset = 0;
    let mut newest = None;
    for _ in 0..MOST_LOG_PAGES {
        let page = server.client.build_status(&template.id, &build.id, offset);
        let page = page.await.ok()?;
        offset += page.log_entries.len();
        let steps = page.log_entries.iter().rev();
        let step = steps.map(|entry| entry.message.as_str());
        newest = step
            .clone()
            .find(|message| message.starts_with('['))
            .map(|message| format!("{message}: "))
            .or(newest);
        if page.log_entries.len() < LOG_PAGE {
            break;
        }
    }
    newest
}

/// Interrupted while the server was at work: what it makes must not stay behind.
async fn abandon(
    server: &Server,
    creation: JoinHandle<soulbox_client::Result<Sandbox>>,
    code: u8,
) -> Result<Sandbox> {
    note("interrupted: the sandbox that is being made is ended");
    if let Ok(Ok(Ok(sandbox))) = timeout(ABANDON_LIMIT, creation).await {
        server.client.kill(&sandbox.id).await?;
    }
    Err(Interrupted(code).into())
}

/// Ended by a signal before there was anything to pass through.
#[derive(Debug)]
pub(crate) struct Interrupted(pub u8);

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

fn create_request(args: &CreateArgs) -> CreateSandbox {
    CreateSandbox {
        template: args.template.clone(),
        timeout: Some(args.timeout.unwrap_or(LEASE_SECONDS)),
        metadata: args.metadata.iter().cloned().collect(),
        env_vars: args.environment.iter().cloned().collect(),
        allow_internet_access: args.no_internet.then_some(false),
        volume_mounts: args.volumes.clone(),
        resources: Resources {
            instance_type: args.instance_type.clone(),
            cpu_count: args.cpu,
            memory_mb: args.memory,
            disk_size_mb: args.disk,
        },
    }
}

/// Keeps a sandbox's end away while it lives.
#[derive(Debug)]
pub(crate) struct Lease {
    renewal: JoinHandle<()>,
}

impl Lease {
    pub(crate) fn hold(client: &Client, id: &str) -> Self {
        let (client, id) = (client.clone(), id.to_owned());
        let renewal = tokio::spawn(async move {
            loop {
                tokio::time::sleep(RENEWAL).await;
                // A renewal that fails is tried again; there is time for several. One that was
                // paused meanwhile is left so: to connect would resume it.
                let renewed = match client.sandbox(&id).await {
                    Ok(found) if found.listed.state == "paused" => continue,
                    Ok(_) => client.connect(&id, LEASE_SECONDS).await.map(drop),
                    Err(error) => Err(error),
                };
                if renewed.is_err_and(|error| error.is_not_found()) {
                    return;
                }
            }
        });
        Self { renewal }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

/// A time limit of nothing would end the command before it began.
pub(crate) fn check_timeout(args: &CreateArgs) -> Result<()> {
    match args.timeout {
        Some(0) => Err(advice(
            "a timeout of 0 leaves no time to run",
            "leave --timeout out for no limit",
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        create: CreateArgs,
    }

    fn request_of(line: &[&str]) -> serde_json::Value {
        let line = Line::parse_from(["x"].iter().chain(line));
        serde_json::to_value(create_request(&line.create)).unwrap()
    }

    #[test]
    fn a_plain_wish_names_only_the_template_and_a_lease() {
        assert_eq!(
            request_of(&[]),
            serde_json::json!({"templateID": "base", "timeout": 300})
        );
    }

    #[test]
    fn every_option_reaches_the_server_under_its_name() {
        let line = "--template t --timeout 1m --env A=1 --metadata job=7 --cpu 4 --memory 1g \
                    --disk 500m --no-internet --type lite";
        assert_eq!(
            request_of(&line.split_whitespace().collect::<Vec<_>>()),
            serde_json::json!({
                "templateID": "t", "timeout": 60, "envVars": {"A": "1"}, "metadata": {"job": "7"},
                "cpuCount": 4, "memoryMB": 1024, "diskSizeMB": 500, "allow_internet_access": false,
                "instanceType": "lite",
            })
        );
    }
}
