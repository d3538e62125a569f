//! A long-running process.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::{
    CommandSpec, EnvdClient, Error, ProcessExit, Result,
    events::{Event, Events},
    run::new_tag,
};

/// The end of the output says why something failed.
const TAIL: usize = 8 << 10;

/// A process inside. It runs on when this is dropped; only the listening ends.
#[derive(Debug)]
pub struct RemoteProcess {
    pid: u32,
    tail: Arc<Mutex<VecDeque<u8>>>,
    follower: JoinHandle<Result<ProcessExit>>,
    /// The follower has been heard: it must not be asked twice.
    over: bool,
    exit: Option<ProcessExit>,
}

impl EnvdClient {
    /// Returns when the process runs.
    pub async fn start(&self, command: &CommandSpec) -> Result<RemoteProcess> {
        let (Event::Started { pid }, events) = self.begin(command, &new_tag(), None).await? else {
            return Err(Error::protocol("a process stream without a start"));
        };
        let tail = Arc::new(Mutex::new(VecDeque::new()));
        Ok(RemoteProcess {
            pid,
            follower: tokio::spawn(follow(events, tail.clone())),
            tail,
            over: false,
            exit: None,
        })
    }
}

/// Takes the output all the time: a process whose output nobody takes would stand still.
async fn follow(mut events: Events, tail: Arc<Mutex<VecDeque<u8>>>) -> Result<ProcessExit> {
    loop {
        match events.next().await? {
            Event::Started { .. } => {}
            Event::Output(_, bytes) => {
                let mut tail = tail.lock();
                tail.extend(bytes);
                let extra = tail.len().saturating_sub(TAIL);
                tail.drain(..extra);
            }
            Event::Ended(exit) => return Ok(exit),
        }
    }
}

impl RemoteProcess {
    /// Inside the sandbox.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits for its end, for as long as it takes. Cancel-safe, and may be asked again.
    pub async fn exited(&mut self) -> Result<ProcessExit> {
        if !self.over {
            let ended = (&mut self.follower).await;
            self.over = true;
            if let Ok(ended) = ended {
                self.exit = Some(ended?);
            }
        }
        self.exit.clone().ok_or(Error::CutOff {
            what: "a process ran",
            source: None,
        })
    }

    /// The last 8 KiB of what it wrote to both streams.
    pub fn tail(&self) -> String {
        let mut tail = self.tail.lock();
        String::from_utf8_lossy(tail.make_contiguous()).into_owned()
    }
}

impl Drop for RemoteProcess {
    fn drop(&mut self) {
        self.follower.abort();
    }
}
