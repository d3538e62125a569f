//! A kernel that speaks Jupyter's protocol over ZeroMQ sockets.
//!
//! Two tasks read for ever: what nobody waits for is thrown away, so that a kernel which talks
//! between cells never blocks. During a cell the reader of the broadcast channel waits for room in
//! the execution's queue, and so the kernel waits for the client.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use serde_json::json;
use tokio::{
    sync::{Mutex, Notify, mpsc},
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use super::{
    Execution, KernelLost, Mode, Outcome, Process, Step, launcher::Folder, spec::Interrupt,
};
use crate::{
    jupyter::{Broadcast, Connection, ExecuteReply, Session},
    zmtp::{self, SocketType},
};

/// Kernels of some languages need many seconds to come up on a busy machine.
const START: Duration = Duration::from_mins(1);
/// A request is small: a kernel that does not take it for so long will not take it at all.
const SEND: Duration = Duration::from_secs(10);
/// The reply and the end of the broadcasts travel apart and arrive together, or one is missing.
const REPLY_AFTER_IDLE: Duration = Duration::from_secs(1);

pub(crate) struct Kernel {
    process: Process,
    session: Rc<Session>,
    shell: Mutex<zmtp::Sender>,
    control: Mutex<zmtp::Sender>,
    interrupt: Interrupt,
    shared: Rc<Shared>,
    tasks: [JoinHandle<()>; 3],
    /// A subscription lasts as long as its socket.
    _iopub: zmtp::Sender,
    _folder: Folder,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the kernel ended while it was starting: {0}")]
    Ended(String),
    #[error("the kernel did not answer within {} seconds", START.as_secs())]
    Silent,
    #[error("the kernel cannot be spoken to")]
    Zmtp(#[from] zmtp::Error),
    #[error("the kernel cannot be spoken to: its key is unusable")]
    Key,
}

/// What the readers and whoever executes know together.
#[derive(Default)]
struct Shared {
    current: RefCell<Option<Current>>,
    lost: Cell<bool>,
    shell_answered: Cell<bool>,
    iopub_heard: Cell<bool>,
    heard: Notify,
}

struct Current {
    request: String,
    steps: mpsc::Sender<Step>,
    idle: bool,
    outcome: Option<Outcome>,
}

impl Kernel {
    /// Waits until the process listens, answers and is heard.
    pub(super) async fn connect(
        process: Process,
        connection: &Connection,
        interrupt: Interrupt,
        folder: Folder,
    ) -> Result<Self, Error> {
        let session = Rc::new(Session::new(&connection.key).map_err(|_| Error::Key)?);
        let deadline = Instant::now() + START;
        let (shell, shell_source) =
            dial(&process, deadline, &connection.shell, SocketType::Dealer).await?;
        let (control, control_source) =
            dial(&process, deadline, &connection.control, SocketType::Dealer).await?;
        let (iopub, iopub_source) = dial(
            &process,
            deadline,
            &connection.iopub,
            SocketType::Subscriber,
        )
        .await?;

        let shared = Rc::new(Shared::default());
        let tasks = [
            tokio::task::spawn_local(read_shell(
                Rc::clone(&shared),
                Rc::clone(&session),
                shell_source,
            )),
            tokio::task::spawn_local(read_iopub(
                Rc::clone(&shared),
                Rc::clone(&session),
                iopub_source,
            )),
            tokio::task::spawn_local(discard(control_source)),
        ];
        let kernel = Self {
            process,
            session,
            shell: Mutex::new(shell),
            control: Mutex::new(control),
            interrupt,
            shared,
            tasks,
            _iopub: iopub,
            _folder: folder,
        };
        kernel.greet(deadline).await?;
        Ok(kernel)
    }

    /// A subscription takes effect without a notification: ask until an answer was heard
    /// on both channels.
    async fn greet(&self, deadline: Instant) -> Result<(), Error> {
        let mut pause = Duration::from_millis(10);
        while !(self.shared.shell_answered.get() && self.shared.iopub_heard.get()) {
            if let Some(exit) = self.process.exit() {
                return Err(Error::Ended(exit.reason()));
            }
            if self.shared.lost.get() || Instant::now() > deadline {
                return Err(Error::Silent);
            }
            self.send(&self.shell, "kernel_info_request", &json!({}))
                .await
                .map_err(|KernelLost| Error::Silent)?;
            let _asked_again = timeout(pause, self.greeted()).await;
            pause = (pause * 2).min(Duration::from_secs(2));
        }
        Ok(())
    }

    async fn greeted(&self) {
        while !(self.shared.shell_answered.get() && self.shared.iopub_heard.get()) {
            self.shared.heard.notified().await;
        }
    }

    pub(super) async fn execute(&self, code: &str, mode: Mode) -> Result<Execution, KernelLost> {
        let content = json!({
            "code": code,
            "silent": mode == Mode::Silent,
            "store_history": mode == Mode::Visible,
            "user_expressions": {},
            "allow_stdin": false,
            "stop_on_error": false,
        });
        let (request, parts) = self
            .session
            .request("execute_request", &content)
            .map_err(|_| KernelLost)?;
        let (steps, execution) = Execution::channel();
        if self.shared.lost.get() {
            return Err(KernelLost);
        }
        *self.shared.current.borrow_mut() = Some(Current {
            request,
            steps,
            idle: false,
            outcome: None,
        });
        self.deliver(&self.shell, &parts).await?;
        Ok(execution)
    }

    pub(super) async fn interrupt(&self) {
        match self.interrupt {
            Interrupt::Signal => self.process.interrupt(),
            Interrupt::Message => {
                let _kernel_gone = self
                    .send(&self.control, "interrupt_request", &json!({}))
                    .await;
            }
        }
    }

    pub(super) fn process(&self) -> &Process {
        &self.process
    }

    async fn send(
        &self,
        channel: &Mutex<zmtp::Sender>,
        kind: &str,
        content: &serde_json::Value,
    ) -> Result<(), KernelLost> {
        let (_, parts) = self
            .session
            .request(kind, content)
            .map_err(|_| KernelLost)?;
        self.deliver(channel, &parts).await
    }

    async fn deliver(
        &self,
        channel: &Mutex<zmtp::Sender>,
        parts: &[Vec<u8>],
    ) -> Result<(), KernelLost> {
        let sent = timeout(SEND, async { channel.lock().await.send(parts).await }).await;
        if matches!(sent, Ok(Ok(()))) {
            return Ok(());
        }
        // What was sent halfway leaves the channel unusable.
        self.shared.mark_lost();
        Err(KernelLost)
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Connects as soon as the kernel listens.
async fn dial(
    process: &Process,
    deadline: Instant,
    endpoint: &zmtp::Endpoint,
    kind: SocketType,
) -> Result<(zmtp::Sender, zmtp::Receiver), Error> {
    let mut pause = Duration::from_millis(2);
    loop {
        let attempt = timeout(START, zmtp::connect(endpoint, kind)).await;
        match attempt {
            Ok(Ok(channel)) => return Ok(channel),
            Ok(Err(error @ zmtp::Error::Protocol(_))) => return Err(error.into()),
            Ok(Err(zmtp::Error::Io(_))) => {}
            Err(_) => return Err(Error::Silent),
        }
        if Instant::now() > deadline {
            return Err(Error::Silent);
        }
        tokio::select! {
            exit = process.exited() => return Err(Error::Ended(exit.reason())),
            () = sleep(pause) => {}
        }
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

async fn read_shell(shared: Rc<Shared>, session: Rc<Session>, mut source: zmtp::Receiver) {
    while let Ok(message) = source.receive().await {
        let Ok(reply) = session.read(message) else {
            continue;
        };
        shared.shell_answered.set(true);
        shared.heard.notify_one();
        if reply.kind == "execute_reply" {
            let outcome = match ExecuteReply::read(&reply.content) {
                ExecuteReply::Done => Outcome::Done,
                ExecuteReply::Aborted => Outcome::Aborted,
            };
            shared.replied(&reply.parent, outcome).await;
        }
    }
    shared.mark_lost();
}

async fn read_iopub(shared: Rc<Shared>, session: Rc<Session>, mut source: zmtp::Receiver) {
    while let Ok(message) = source.receive().await {
        let Ok(message) = session.read(message) else {
            continue;
        };
        shared.iopub_heard.set(true);
        shared.heard.notify_one();
        let Some(steps) = shared.waiting_for(&message.parent) else {
            continue;
        };
        match Broadcast::read(&message) {
            Broadcast::Event(event) => {
                let _nobody_listens = steps.send(Step::Event(event)).await;
            }
            Broadcast::Idle => Rc::clone(&shared).became_idle(&message.parent).await,
            Broadcast::Other => {}
        }
    }
    shared.mark_lost();
}

async fn discard(mut source: zmtp::Receiver) {
    while source.receive().await.is_ok() {}
}

impl Shared {
    fn waiting_for(&self, request: &str) -> Option<mpsc::Sender<Step>> {
        self.current
            .borrow()
            .as_ref()
            .filter(|current| current.request == request)
            .map(|current| current.steps.clone())
    }

    async fn replied(&self, request: &str, outcome: Outcome) {
        self.with_current(request, |current| current.outcome = Some(outcome));
        self.end_if_complete(request).await;
    }

    async fn became_idle(self: Rc<Self>, request: &str) {
        self.with_current(request, |current| current.idle = true);
        if self.end_if_complete(request).await {
            return;
        }
        let (shared, request) = (Rc::clone(&self), request.to_owned());
        tokio::task::spawn_local(async move {
            sleep(REPLY_AFTER_IDLE).await;
            shared.replied(&request, Outcome::Done).await;
        });
    }

    fn with_current(&self, request: &str, change: impl FnOnce(&mut Current)) {
        let mut current = self.current.borrow_mut();
        if let Some(current) = current
            .as_mut()
            .filter(|current| current.request == request)
        {
            change(current);
        }
    }

    async fn end_if_complete(&self, request: &str) -> bool {
        let ended = self.current.borrow_mut().take_if(|current| {
            current.request == request && current.idle && current.outcome.is_some()
        });
        let Some(Current {
            steps,
            outcome: Some(outcome),
            ..
        }) = ended
        else {
            return false;
        };
        let _nobody_listens = steps.send(Step::End(outcome)).await;
        true
    }

    fn mark_lost(&self) {
        self.lost.set(true);
        self.current.borrow_mut().take();
        self.heard.notify_one();
    }
}
