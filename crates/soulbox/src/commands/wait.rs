//! Until sandboxes end.

use std::time::{Duration, Instant};

use anyhow::Result;
use soulbox_client::Error;

use crate::{
    args::WaitArgs,
    context::Server,
    interrupts::unless_interrupted,
    output,
    report::{self, warning},
};

const POLL: Duration = Duration::from_millis(500);
/// How long a server that does not answer is waited for: sandboxes survive its restart.
const OUTAGE: Duration = Duration::from_mins(1);
/// How long an end may take until its event is there.
const ENDING: Duration = Duration::from_mins(1);
const TIMED_OUT: u8 = 124;

pub(super) async fn run(args: &WaitArgs) -> Result<u8> {
    let server = Server::connect(&args.server)?;
    let mut ids = Vec::new();
    for name in &args.sandboxes {
        ids.push(server.find_ended_too(name).await?);
    }
    let waiting = async {
        for id in &ids {
            until_it_ends(&server, id).await?;
            output::text(&output::printable(&reason(&server, id).await?))?;
        }
        anyhow::Ok(0)
    };
    let bounded = async {
        let Some(seconds) = args.timeout else {
            return waiting.await;
        };
        let limit = Duration::from_secs(seconds.into());
        if let Ok(done) = tokio::time::timeout(limit, waiting).await {
            return done;
        }
        report::complaint(&format!("not all have ended within {seconds} s"));
        Ok(TIMED_OUT)
    };
    unless_interrupted(bounded, "only the waiting ends; the sandboxes go on").await?
}

async fn until_it_ends(server: &Server, id: &str) -> Result<()> {
    let mut trouble: Option<Instant> = None;
    loop {
        match server.client.sandbox(id).await {
            Ok(_) => trouble = None,
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error @ (Error::Unreachable { .. } | Error::Broken { .. })) => {
                let since = *trouble.get_or_insert_with(|| {
                    warning(&format!("{error}; trying again"));
                    Instant::now()
                });
                if since.elapsed() > OUTAGE {
                    return Err(error.into());
                }
            }
            Err(error) => return Err(server.explain(error)),
        }
        tokio::time::sleep(POLL).await;
    }
}

/// In the word that the event has; the newest `killed` is the end. One that is being ended is not
/// there any more, and has its event when it is gone.
async fn reason(server: &Server, id: &str) -> Result<String> {
    let since = Instant::now();
    loop {
        let events = server.client.events(Some(id), 0).await;
        let events = events.map_err(|error| server.explain(error))?;
        let end = events.iter().find(|event| event.label == "killed");
        if let Some(reason) = end.and_then(|event| event.data["reason"].as_str()) {
            return Ok(reason.to_owned());
        }
        if since.elapsed() > ENDING {
            return Ok("ended".to_owned());
        }
        tokio::time::sleep(POLL).await;
    }
}
