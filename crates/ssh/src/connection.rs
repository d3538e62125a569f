//! What a client asks for, channel by channel.

use std::{collections::HashMap, sync::Arc};

use russh::{
    Channel, ChannelId, ChannelOpenFailure, Pty, Sig,
    server::{Auth, ChannelOpenHandle, Handler, Msg, Session as Ssh},
};
use soulbox_client::envd::process::PtySize;
use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Sandbox,
    flow::{Gauge, Input, InputSender, Output, TooMuch, input},
    port,
    session::{Order, Session, Settings, Task, signal_of},
};

/// A client needs a few; each has buffers.
const MOST_CHANNELS: usize = 256;
const MOST_VARIABLES: usize = 256;
const MOST_BYTES_OF_A_VARIABLE: usize = 32 << 10;
/// Orders that a process has not been told yet; later ones are dropped.
const ORDERS: usize = 16;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Ssh(#[from] russh::Error),
    #[error(transparent)]
    TooMuch(#[from] TooMuch),
}

impl From<Error> for russh::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Ssh(error) => error,
            Error::TooMuch(error) => Self::IO(std::io::Error::other(error)),
        }
    }
}

pub(crate) struct Connection {
    sandbox: Sandbox,
    user: String,
    channels: HashMap<ChannelId, Open>,
    gauge: Arc<Gauge>,
    ended: CancellationToken,
    tasks: TaskTracker,
}

/// A channel of the client's.
struct Open {
    /// `None` once the client has finished writing.
    input: Option<InputSender>,
    left: CancellationToken,
    /// Until something runs on it.
    idle: Option<Idle>,
    orders: Option<mpsc::Sender<Order>>,
}

struct Idle {
    input: Input,
    output: Output,
    settings: Settings,
}

impl Connection {
    pub(crate) fn new(
        sandbox: Sandbox,
        gauge: Arc<Gauge>,
        ended: CancellationToken,
        tasks: TaskTracker,
    ) -> Self {
        Self {
            sandbox,
            user: String::new(),
            channels: HashMap::new(),
            gauge,
            ended,
            tasks,
        }
    }

    fn settings(&mut self, channel: ChannelId) -> Option<&mut Settings> {
        let idle = self.channels.get_mut(&channel)?.idle.as_mut()?;
        Some(&mut idle.settings)
    }

    /// `false`: something runs there already.
    fn start(&mut self, channel: ChannelId, task: Task, ssh: &Ssh) -> bool {
        let Some(open) = self.channels.get_mut(&channel) else {
            return false;
        };
        let Some(idle) = open.idle.take() else {
            return false;
        };
        let (sender, orders) = mpsc::channel(ORDERS);
        open.orders = Some(sender);
        let session = Session {
            envd: self.sandbox.envd(&self.user),
            user: self.user.clone(),
            task,
            settings: idle.settings,
            input: idle.input,
            output: idle.output,
            orders,
            handle: ssh.handle(),
            left: open.left.clone(),
        };
        self.tasks.spawn(session.run());
        true
    }

    fn order(&self, channel: ChannelId, order: Order) -> bool {
        let orders = self
            .channels
            .get(&channel)
            .and_then(|open| open.orders.as_ref());
        orders.is_some_and(|orders| orders.try_send(order).is_ok())
    }
}

fn reply(ssh: &mut Ssh, channel: ChannelId, done: bool) -> Result<(), Error> {
    if done {
        ssh.channel_success(channel)?;
    } else {
        ssh.channel_failure(channel)?;
    }
    Ok(())
}

fn size(columns: u32, rows: u32) -> PtySize {
    let clamp = |number: u32, default: u16| match u16::try_from(number) {
        Ok(0) => default,
        Ok(number) => number,
        Err(_) => u16::MAX,
    };
    PtySize {
        cols: clamp(columns, 80),
        rows: clamp(rows, 24),
    }
}

impl Handler for Connection {
    type Error = Error;

    async fn auth_none(&mut self, user: &str) -> Result<Auth, Error> {
        user.clone_into(&mut self.user);
        Ok(Auth::Accept)
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        handle: ChannelOpenHandle,
        _: &mut Ssh,
    ) -> Result<(), Error> {
        if self.channels.len() >= MOST_CHANNELS {
            handle.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        }
        // What comes is passed to `data` below: there, nobody waits for one channel with all others.
        let (_, channel) = channel.split();
        let id = channel.id();
        let (sender, input) = input(&self.gauge);
        let idle = Idle {
            input,
            output: Output::new(channel, &self.gauge),
            settings: Settings::default(),
        };
        let open = Open {
            input: Some(sender),
            left: self.ended.child_token(),
            idle: Some(idle),
            orders: None,
        };
        self.channels.insert(id, open);
        handle.accept().await;
        Ok(())
    }

    async fn channel_open_direct_tcpip(
        &mut self,
        channel: Channel<Msg>,
        host: &str,
        port: u32,
        _: &str,
        _: u32,
        handle: ChannelOpenHandle,
        _: &mut Ssh,
    ) -> Result<(), Error> {
        if self.channels.len() >= MOST_CHANNELS {
            handle.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        }
        let number = u16::try_from(port).ok().filter(|_| port::is_inside(host));
        let Some(number) = number else {
            let refusal = ChannelOpenFailure::AdministrativelyProhibited;
            handle.reject(refusal).await;
            return Ok(());
        };
        let (_, channel) = channel.split();
        let (sender, input) = input(&self.gauge);
        let left = self.ended.child_token();
        let open = Open {
            input: Some(sender),
            left: left.clone(),
            idle: None,
            orders: None,
        };
        self.channels.insert(channel.id(), open);
        let output = Output::new(channel, &self.gauge);
        let (client, sandbox) = (self.sandbox.client.clone(), self.sandbox.id.clone());
        let pass = async move {
            match client.open_port(&sandbox, number).await {
                Ok(stream) => {
                    handle.accept().await;
                    port::pass(stream, input, output).await;
                }
                Err(error) => handle.reject(port::refusal(&error)).await,
            }
        };
        self.tasks
            .spawn(async move { left.run_until_cancelled(pass).await });
        Ok(())
    }

    async fn data(&mut self, channel: ChannelId, data: &[u8], _: &mut Ssh) -> Result<(), Error> {
        let input = self
            .channels
            .get(&channel)
            .and_then(|open| open.input.as_ref());
        match input {
            Some(input) => Ok(input.send(data)?),
            None => Ok(()),
        }
    }

    async fn channel_eof(&mut self, channel: ChannelId, _: &mut Ssh) -> Result<(), Error> {
        if let Some(open) = self.channels.get_mut(&channel) {
            open.input = None;
        }
        Ok(())
    }

    async fn channel_close(&mut self, channel: ChannelId, _: &mut Ssh) -> Result<(), Error> {
        if let Some(open) = self.channels.remove(&channel) {
            open.left.cancel();
        }
        Ok(())
    }

    async fn pty_request(
        &mut self,
        channel: ChannelId,
        term: &str,
        columns: u32,
        rows: u32,
        _: u32,
        _: u32,
        _: &[(Pty, u32)],
        ssh: &mut Ssh,
    ) -> Result<(), Error> {
        let settings = self.settings(channel);
        let done = settings.is_some();
        if let Some(settings) = settings {
            settings.pty = Some(size(columns, rows));
            let term = term.to_owned();
            settings.environment.insert("TERM".to_owned(), term);
        }
        reply(ssh, channel, done)
    }

    async fn env_request(
        &mut self,
        channel: ChannelId,
        name: &str,
        value: &str,
        ssh: &mut Ssh,
    ) -> Result<(), Error> {
        let valid = !name.is_empty()
            // A user's `SendEnv *` must not hand the API key to what runs inside.
            && !name.starts_with("SOULBOX_")
            && !name.starts_with("E2B_")
            && !name.contains(['=', '\0'])
            && !value.contains('\0')
            && name.len() + value.len() <= MOST_BYTES_OF_A_VARIABLE;
        let settings = self
            .settings(channel)
            .filter(|settings| valid && settings.environment.len() < MOST_VARIABLES);
        let done = settings.is_some();
        if let Some(settings) = settings {
            let (name, value) = (name.to_owned(), value.to_owned());
            settings.environment.insert(name, value);
        }
        reply(ssh, channel, done)
    }

    async fn shell_request(&mut self, channel: ChannelId, ssh: &mut Ssh) -> Result<(), Error> {
        let done = self.start(channel, Task::Shell, ssh);
        reply(ssh, channel, done)
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        line: &[u8],
        ssh: &mut Ssh,
    ) -> Result<(), Error> {
        let done = match String::from_utf8(line.to_vec()) {
            Ok(line) => self.start(channel, Task::Line(line), ssh),
            Err(_) => false,
        };
        reply(ssh, channel, done)
    }

    async fn subsystem_request(
        &mut self,
        channel: ChannelId,
        name: &str,
        ssh: &mut Ssh,
    ) -> Result<(), Error> {
        let done = name == "sftp" && self.start(channel, Task::Sftp, ssh);
        reply(ssh, channel, done)
    }

    async fn window_change_request(
        &mut self,
        channel: ChannelId,
        columns: u32,
        rows: u32,
        _: u32,
        _: u32,
        _: &mut Ssh,
    ) -> Result<(), Error> {
        let size = size(columns, rows);
        match self.settings(channel) {
            Some(settings) => settings.pty = settings.pty.map(|_| size),
            None => {
                self.order(channel, Order::Resize(size));
            }
        }
        Ok(())
    }

    async fn signal(&mut self, channel: ChannelId, name: Sig, _: &mut Ssh) -> Result<(), Error> {
        if let Some(signal) = signal_of(&name) {
            self.order(channel, Order::Signal(signal));
        }
        Ok(())
    }
}
