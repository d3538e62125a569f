//! One execution, from its place in the queue to the last line of the answer.
//!
//! The client may disconnect at any moment: the lines' channel is then closed. A run that waits leaves
//! the queue; one that executes is interrupted, and releases the lock when the kernel is free.

use std::{future::Future, rc::Rc, time::Duration};

use bytes::Bytes;
use http::HeaderValue;
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};

use crate::{
    context::{Context, KernelState},
    envd::{self, Variables},
    kernel::{Event, Execution, Exit, Failure, Kernel, KernelLost, Mode, Next, Outcome, Stream},
    language::Changes,
    ndjson,
};

/// A client that takes nothing for so long while it only has to receive an end is considered gone.
const STALLED: Duration = Duration::from_secs(10);
const KEEPALIVE: Duration = Duration::from_secs(5);
/// Setting variables takes milliseconds; a kernel that needs longer is busy with something else.
const SILENT: Duration = Duration::from_secs(10);
/// How often and how long a cell is asked to stop before its kernel is replaced.
const INTERRUPTS: u32 = 6;
const INTERRUPT_PAUSE: Duration = Duration::from_secs(2);
/// A kernel's death and the end of its output are seen apart.
const FINAL_OUTPUT_WAIT: Duration = Duration::from_millis(200);

pub(crate) struct Request {
    pub(crate) code: String,
    pub(crate) variables: Variables,
    pub(crate) token: Option<HeaderValue>,
    pub(crate) envd_port: u16,
}

/// The client disconnected.
struct ClientGone;

struct Client(mpsc::Sender<Bytes>);

impl Client {
    /// Waits for a client that takes its time, but not for ever.
    async fn send(&self, line: Bytes) -> Result<(), ClientGone> {
        match timeout(STALLED, self.0.send(line)).await {
            Ok(sent) => sent.map_err(|_| ClientGone),
            Err(_) => Err(ClientGone),
        }
    }

    /// Output waits as long as the client likes, and the kernel with it, unless the kernel is taken
    /// away in the meantime.
    async fn stream(&self, line: Bytes, kernel: &Kernel) -> Result<(), ClientGone> {
        let taken_away = async {
            kernel.process().exited().await;
            sleep(STALLED).await;
        };
        tokio::select! {
            biased;
            sent = self.0.send(line) => sent.map_err(|_| ClientGone),
            () = taken_away => Err(ClientGone),
        }
    }

    /// A client that has not taken the lines before needs no sign of life.
    fn keep_alive(&self) {
        let _full_or_gone = self.0.try_send(ndjson::keepalive());
    }

    async fn fail(&self, failure: &Failure) -> Result<(), ClientGone> {
        self.send(ndjson::error(failure)).await
    }

    /// Waits for `work` and sends keepalives to the client in the meantime.
    async fn wait_for<T>(&self, work: impl Future<Output = T>) -> Result<T, ClientGone> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                () = self.0.closed() => return Err(ClientGone),
                () = sleep(KEEPALIVE) => self.keep_alive(),
            }
        }
    }
}

pub(crate) async fn run(context: Rc<Context>, request: Request, lines: mpsc::Sender<Bytes>) {
    let client = Client(lines);
    let Ok(mut state) = client.wait_for(context.state.lock()).await else {
        return;
    };
    let shown = execute(&context, &mut state, &request, &client).await;
    if shown.is_ok() {
        let _gone = client.send(ndjson::end()).await;
    }
    // The answer ends here; what follows is for the next run.
    drop(client);
    restore(&context, &mut state, &request.variables).await;
}

async fn execute(
    context: &Context,
    state: &mut KernelState,
    request: &Request,
    client: &Client,
) -> Result<(), ClientGone> {
    if context.is_removed() {
        return client.fail(&closed()).await;
    }
    let kernel = match client.wait_for(context.kernel(state)).await? {
        Ok(kernel) => kernel,
        Err(error) => {
            let text = format!("Failed to send execution request: {error}");
            return client.fail(&Failure::new("WebSocketError", text)).await;
        }
    };
    state.used = true;
    client
        .wait_for(prepare(context, state, request, &kernel))
        .await?;

    let Ok(execution) = kernel.execute(&request.code, Mode::Visible).await else {
        return lost(context, state, &kernel, client).await;
    };
    follow(context, state, &kernel, execution, client).await
}

/// Sets the sandbox's variables, once per kernel, and this run's own.
async fn prepare(context: &Context, state: &mut KernelState, request: &Request, kernel: &Kernel) {
    let mut changes = Changes::new();
    if state.globals.is_none() {
        // Without them the run goes on; the next one asks again.
        match envd::variables(request.envd_port, request.token.as_ref()).await {
            Ok(globals) => {
                changes.extend(globals.iter().map(|(k, v)| (k.clone(), Some(v.clone()))));
                state.globals = Some(globals);
            }
            Err(error) => eprintln!("soulbox-interpreter: no variables: {error}"),
        }
    }
    let own = request.variables.iter();
    changes.extend(own.map(|(k, v)| (k.clone(), Some(v.clone()))));
    set(context, kernel, &changes).await;
}

/// Takes a run's variables back: to the sandbox's value, or away.
async fn restore(context: &Context, state: &mut KernelState, variables: &Variables) {
    if variables.is_empty() || context.is_removed() {
        return;
    }
    let globals = state.globals.clone().unwrap_or_default();
    let changes = variables
        .keys()
        .map(|name| (name.clone(), globals.get(name).cloned()))
        .collect();
    if let Ok(kernel) = context.kernel(state).await {
        set(context, &kernel, &changes).await;
    }
}

async fn set(context: &Context, kernel: &Kernel, changes: &Changes) {
    let Some(cell) = context.language.environment(changes) else {
        return;
    };
    let finished = timeout(SILENT, async {
        if let Ok(execution) = kernel.execute(&cell, Mode::Silent).await {
            let _died = execution.finish().await;
        }
    });
    if finished.await.is_err() {
        kernel.interrupt().await;
    }
}

async fn follow(
    context: &Context,
    state: &mut KernelState,
    kernel: &Kernel,
    mut execution: Execution,
    client: &Client,
) -> Result<(), ClientGone> {
    loop {
        let next = tokio::select! {
            biased;
            () = client.0.closed() => {
                stop(context, state, kernel, execution).await;
                return Err(ClientGone);
            }
            next = execution.next() => next,
            _ = kernel.process().exited() => {
                // Its last output may still be on the way.
                match timeout(FINAL_OUTPUT_WAIT, execution.next()).await {
                    Ok(next) => next,
                    Err(_) => Err(KernelLost),
                }
            }
            () = sleep(KEEPALIVE) => {
                client.keep_alive();
                continue;
            }
        };
        match next {
            Ok(Next::Event(event)) => {
                let mut sent = client.stream(ndjson::event(&event), kernel).await;
                if let Some(reason) = state.notice.take() {
                    let text = format!("Context was restarted: {reason}\n");
                    let notice = ndjson::event(&Event::Text(Stream::Stderr, text));
                    sent = sent.and(client.stream(notice, kernel).await);
                }
                if sent.is_err() {
                    stop(context, state, kernel, execution).await;
                    return Err(ClientGone);
                }
            }
            Ok(Next::End(Outcome::Done)) => return Ok(()),
            Ok(Next::End(Outcome::Aborted)) => {
                let failure = Failure::new("ExecutionAborted", "Execution was aborted");
                return client.fail(&failure).await;
            }
            Err(KernelLost) => return lost(context, state, kernel, client).await,
        }
    }
}

/// The kernel is gone under the run: says why, and has the next one ready.
async fn lost(
    context: &Context,
    state: &mut KernelState,
    kernel: &Kernel,
    client: &Client,
) -> Result<(), ClientGone> {
    // A connection that broke before the process ended is a kernel that is ending.
    let exit = timeout(Duration::from_secs(2), kernel.process().exited()).await;
    if kernel.process().was_ended_by_us() || context.is_removed() {
        return client.fail(&closed()).await;
    }
    let sent = match exit {
        // `exit` in a shell is no accident: it goes on with a new one.
        Ok(Exit::Code(_)) if context.language.is_bash() => Ok(()),
        Ok(exit) => {
            let text = format!("Context was restarted: {}", exit.reason());
            client.fail(&Failure::new("ContextRestarting", text)).await
        }
        Err(_) => {
            let text = "The connections was lost, rerun the code to get the results";
            client.fail(&Failure::new("WebSocketError", text)).await
        }
    };
    let restarted = client.wait_for(context.start(state)).await;
    if let Ok(Err(error)) = restarted {
        eprintln!("soulbox-interpreter: the kernel cannot be started again: {error}");
    }
    sent
}

/// Nobody waits for the cell any more: it is interrupted until the kernel is free, and the kernel
/// replaced when it does not care.
async fn stop(
    context: &Context,
    state: &mut KernelState,
    kernel: &Kernel,
    mut execution: Execution,
) {
    for _ in 0..INTERRUPTS {
        kernel.interrupt().await;
        let finished = timeout(INTERRUPT_PAUSE, async {
            loop {
                match execution.next().await {
                    Ok(Next::Event(_)) => {}
                    Ok(Next::End(_)) => return Ok(()),
                    Err(KernelLost) => return Err(KernelLost),
                }
            }
        });
        match finished.await {
            Ok(Ok(())) => return,
            Ok(Err(KernelLost)) => break,
            Err(_) => {}
        }
    }
    if kernel.process().was_ended_by_us() {
        return;
    }
    let reason = match kernel.process().exit() {
        Some(exit) => exit.reason(),
        None => "the cell before did not end when it was interrupted".to_owned(),
    };
    if let Err(error) = context.start(state).await {
        eprintln!("soulbox-interpreter: the kernel cannot be started again: {error}");
    }
    state.notice = Some(reason);
}

fn closed() -> Failure {
    Failure::new(
        "UnexpectedEndOfExecution",
        "Connection to the execution was closed before the execution was finished",
    )
}
