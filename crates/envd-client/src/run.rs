//! Runs a command to its end.

use std::time::Duration;

use soulbox_envd_protocol::{
    Encoding, frames,
    process::{ProcessConfig, ProcessSelector, SIGKILL, SendSignalRequest, StartRequest},
    stream_headers,
};
use tokio::time::{sleep, timeout};

use crate::{
    CommandSpec, EnvdClient, Error, OutputStream, ProcessExit, Result,
    client::{encode, full},
    events::{Event, Events},
    exchange::CALL_LIMIT,
};

const STARTING: &str = "starting a command";
/// envd ends the process at the limit itself, and says so; this is how long it may take to.
const GRACE: Duration = Duration::from_secs(5);
/// How long ending an abandoned process may take.
const END_LIMIT: Duration = Duration::from_secs(10);
/// A process whose start was not heard of may appear yet.
const MAY_APPEAR: u32 = 20;
const LOOK_AGAIN: Duration = Duration::from_millis(100);

impl EnvdClient {
    /// Runs it to its end, at most for `limit`: then it is killed and the error is
    /// [`Error::TooSlow`]. It is killed as well when this future is dropped, or fails.
    ///
    /// `output` gets the bytes as they come, cut anywhere. An account that does not exist is
    /// [`Error::Refused`] with `unauthenticated`.
    pub async fn run(
        &self,
        command: &CommandSpec,
        output: &mut (dyn FnMut(OutputStream, &[u8]) + Send),
        limit: Duration,
    ) -> Result<ProcessExit> {
        let too_slow = || Error::TooSlow {
            what: "the command",
            limit,
        };
        let mut end = KillOnDrop::new(self, &command.user);
        let run = async {
            let (mut event, mut events) = self.begin(command, &end.tag, Some(limit)).await?;
            loop {
                match event {
                    Event::Started { .. } => end.started = true,
                    Event::Output(stream, bytes) => output(stream, &bytes),
                    Event::Ended(exit) => return Ok(exit),
                }
                event = events.next().await?;
            }
        };
        match timeout(limit.saturating_add(GRACE), run).await {
            Ok(Ok(exit)) => {
                end.disarm();
                Ok(exit)
            }
            Ok(Err(error)) if error.code() == Some("deadline_exceeded") => {
                end.disarm();
                Err(too_slow())
            }
            // Refused before anything ran.
            Ok(Err(error @ Error::Refused { .. })) if !end.started => {
                end.disarm();
                Err(error)
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(too_slow()),
        }
    }

    /// Starts a process, and gives its first event, which is its start, and those that follow.
    pub(crate) async fn begin(
        &self,
        command: &CommandSpec,
        tag: &str,
        limit: Option<Duration>,
    ) -> Result<(Event, Events)> {
        let starting = async {
            let mut events = self.follow_new(command, tag, limit).await?;
            Ok((events.next().await?, events))
        };
        let (what, limit) = (STARTING, self.start_limit);
        timeout(limit, starting)
            .await
            .unwrap_or(Err(Error::TooSlow { what, limit }))
    }

    async fn follow_new(
        &self,
        command: &CommandSpec,
        tag: &str,
        limit: Option<Duration>,
    ) -> Result<Events> {
        let start = StartRequest {
            process: Some(ProcessConfig {
                cmd: command.program.clone(),
                args: command.args.clone(),
                envs: command.env.clone(),
                cwd: command.cwd.clone(),
            }),
            stdin: Some(false),
            tag: Some(tag.to_owned()),
            pty: None,
        };
        let request = self.procedure("Start", &command.user, Encoding::Stream)?;
        let request = stream_headers(request, limit);
        let start = frames::encode(&encode(&start)?);
        let body = full(start.ok_or_else(|| Error::protocol("too long to send"))?);
        let exchange = self.call(request, body, STARTING, CALL_LIMIT).await?;
        Ok(Events::new(exchange))
    }

    /// Kills a process and its group.
    async fn end(&self, tag: &str, user: &str) -> Result<()> {
        let message = SendSignalRequest {
            process: Some(ProcessSelector::by_tag(tag)),
            signal: SIGKILL,
        };
        let request = self.procedure("SendSignal", user, Encoding::Unary)?;
        let what = "ending a command";
        let body = full(encode(&message)?);
        self.call(request, body, what, CALL_LIMIT).await.map(drop)
    }
}

pub(crate) fn new_tag() -> String {
    format!("soulbox-{}", uuid::Uuid::new_v4())
}

/// envd keeps processes whose stream is closed, as E2B does; this one must not stay.
struct KillOnDrop {
    client: EnvdClient,
    tag: String,
    user: String,
    started: bool,
    armed: bool,
}

impl KillOnDrop {
    fn new(client: &EnvdClient, user: &str) -> Self {
        Self {
            client: client.clone(),
            tag: new_tag(),
            user: user.to_owned(),
            started: false,
            armed: true,
        }
    }

    fn disarm(&mut self) {
        self.armed = false;
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        if !self.armed {
            return;
        }
        let (client, tag) = (self.client.clone(), std::mem::take(&mut self.tag));
        let user = std::mem::take(&mut self.user);
        let mut tries = if self.started { 1 } else { MAY_APPEAR };
        runtime.spawn(timeout(END_LIMIT, async move {
            while let Err(error) = client.end(&tag, &user).await {
                tries -= 1;
                if tries == 0 || error.code() != Some("not_found") {
                    break;
                }
                sleep(LOOK_AGAIN).await;
            }
        }));
    }
}
