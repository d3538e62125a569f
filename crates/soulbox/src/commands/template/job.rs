//! One build, from the request to its result.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;
use soulbox_client::model::{
    Resources,
    templates::{RequestBuild, RequestedBuild, StartBuild},
};

use super::{
    follow::{self, BuildEnd, OnInterrupt},
    lines::Lines,
    printer::Printer,
    upload,
};
use crate::{
    args::BuildSettings,
    context::Server,
    interrupts::Interrupts,
    option_names::as_options,
    output::{self, units},
    pack::Archive,
    report,
};

/// A build that only has to be sent.
pub(super) struct Job {
    pub name: String,
    pub start: StartBuild,
    pub archives: Vec<Archive>,
    pub lines: Lines,
}

/// A build that is under way.
pub(super) struct Started {
    pub requested: RequestedBuild,
    pub name: String,
    pub lines: Lines,
    pub at: Instant,
    pub on_interrupt: OnInterrupt,
}

pub(super) async fn run(server: &Server, settings: &BuildSettings, job: Job) -> Result<u8> {
    let started = Instant::now();
    let mut interrupts = Interrupts::listen()?;
    let request = RequestBuild {
        name: job.name.clone(),
        tags: settings.more_tags.clone(),
        resources: Resources {
            instance_type: settings.instance_type.clone(),
            cpu_count: settings.cpu,
            memory_mb: settings.memory,
            disk_size_mb: settings.disk,
        },
    };
    let requested = tokio::select! {
        requested = server.client.request_build(&request) => {
            requested.map_err(|error| server.explain(as_options(error)))?
        }
        code = interrupts.next() => return Ok(code),
    };
    let sending = async {
        for archive in &job.archives {
            upload::send(&server.client, &requested.template, archive, settings.quiet).await?;
        }
        let (template, build) = (&requested.template, &requested.build);
        server
            .client
            .start_build(template, build, &job.start)
            .await?;
        anyhow::Ok(())
    };
    tokio::select! {
        sent = sending => {
            if let Err(error) = sent {
                follow::abandon(&server.client, &requested).await;
                return Err(error);
            }
        }
        code = interrupts.next() => {
            follow::abandon(&server.client, &requested).await;
            return Ok(code);
        }
    }
    let started = Started {
        requested,
        name: job.name,
        lines: job.lines,
        at: started,
        on_interrupt: OnInterrupt::Cancel,
    };
    watch(server, settings, &started, interrupts).await
}

/// Follows a build that has started, and prints its result.
pub(super) async fn watch(
    server: &Server,
    settings: &BuildSettings,
    started: &Started,
    mut interrupts: Interrupts,
) -> Result<u8> {
    let (requested, name) = (&started.requested, &started.name);
    if settings.detach {
        return outcome(settings, requested, "building", &requested.build);
    }
    let earlier = earlier_build(server, requested).await;
    let mut printer = Printer::new(settings.quiet).with_time_left(started.at, earlier);
    let ending = follow::follow(
        &server.client,
        requested,
        &mut printer,
        &mut interrupts,
        started.on_interrupt,
    )
    .await;
    printer.end(match &ending {
        Ok(BuildEnd::Failed(reason)) => Some(&reason.message),
        _ => None,
    });
    match ending? {
        BuildEnd::Ready => {
            if !settings.quiet && !settings.json {
                report::note(&format!(
                    "built {name} in {:.1} s (build {}); try: soulbox shell --template {name}",
                    started.at.elapsed().as_secs_f64(),
                    requested.build
                ));
            }
            outcome(settings, requested, "ready", &requested.template)
        }
        BuildEnd::Failed(reason) => {
            if settings.json {
                outcome(settings, requested, "error", "")?;
            }
            Err(started.lines.explain(&reason))
        }
        BuildEnd::Interrupted(code) => Ok(code),
    }
}

/// What the newest build of the template that succeeded took.
async fn earlier_build(server: &Server, requested: &RequestedBuild) -> Option<Duration> {
    let detail = server.client.template(&requested.template).await.ok()?;
    let ready = detail.builds.iter().filter(|one| one.status == "ready");
    let newest = ready.max_by(|one, other| one.created_at.cmp(&other.created_at))?;
    let begun = units::unix_millis(&newest.created_at)?;
    let ended = units::unix_millis(newest.finished_at.as_ref()?)?;
    u64::try_from(ended - begun).ok().map(Duration::from_millis)
}

fn outcome(
    settings: &BuildSettings,
    requested: &RequestedBuild,
    status: &str,
    plain: &str,
) -> Result<u8> {
    if settings.json {
        output::json(&json!({
            "templateID": requested.template,
            "buildID": requested.build,
            "names": requested.names,
            "tags": requested.tags,
            "status": status,
        }))?;
    } else {
        output::text(&output::printable(plain))?;
    }
    Ok(0)
}
