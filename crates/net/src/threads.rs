//! Threads that may enter another network namespace and always return to their own.
//!
//! A namespace belongs to a thread, so a runtime's own threads must never change theirs. These do
//! it for them: after every job a thread returns to the namespace it was made for, and one that
//! cannot return ends, so that no later job runs in the wrong place and no namespace stays alive
//! because a thread sits in it.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::sync::oneshot;

/// Jobs take microseconds to a few milliseconds; more than this waiting means something is stuck.
const QUEUE: usize = 4096;

type Job = Box<dyn FnOnce() + Send>;

/// A few threads and one queue. Threads start when needed; they end with this value.
pub(crate) struct Threads {
    shared: Arc<Shared>,
}

struct Shared {
    name: &'static str,
    most: usize,
    home: OwnedFd,
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    alive: usize,
    idle: usize,
    closed: bool,
}

impl Threads {
    /// Home is the namespace of the caller.
    pub(crate) fn new(name: &'static str, most: usize) -> io::Result<Self> {
        let shared = Shared {
            name,
            most,
            home: current_namespace()?,
            state: Mutex::default(),
            work: Condvar::new(),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Runs a job; its result is dropped where it was made when the caller stops waiting.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let (reply, answer) = oneshot::channel();
        self.submit(Box::new(move || drop(reply.send(job()))))?;
        answer
            .await
            .map_err(|_| io::Error::other("the namespace thread ended during the job"))
    }

    fn submit(&self, job: Job) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        if state.jobs.len() >= QUEUE {
            return Err(io::Error::new(
                io::ErrorKind::WouldBlock,
                "too many jobs are waiting",
            ));
        }
        state.jobs.push_back(job);
        if state.idle >= state.jobs.len() || state.alive >= self.shared.most {
            self.shared.work.notify_one();
            return Ok(());
        }
        state.alive += 1;
        drop(state);
        let here = Alive(Arc::clone(&self.shared));
        // When no thread can be made, another takes the job, or `Alive` gives its caller an error.
        std::thread::Builder::new()
            .name(self.shared.name.to_owned())
            .stack_size(256 * 1024)
            .spawn(move || here.0.work_until_closed())
            .map(drop)
            .or_else(|error| {
                if self.shared.state.lock().alive > 0 {
                    Ok(())
                } else {
                    Err(error)
                }
            })
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.state.lock().closed = true;
        self.shared.work.notify_all();
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Threads")
            .field("name", &self.shared.name)
            .finish_non_exhaustive()
    }
}

/// Counts a thread out however it ends.
struct Alive(Arc<Shared>);

impl Drop for Alive {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.alive -= 1;
        // Nobody is left to take what waits: its callers get an error now, not at their time limit.
        let orphans = if state.alive == 0 {
            std::mem::take(&mut state.jobs)
        } else {
            VecDeque::new()
        };
        drop(state);
        drop(orphans);
    }
}

impl Shared {
    fn work_until_closed(&self) {
        // A thread starts where its maker was, which need not be home.
        while self.restore_namespace() {
            let Some(job) = self.next() else { return };
            // The panic is reported by its hook, and to the caller by the reply that never comes.
            std::panic::catch_unwind(AssertUnwindSafe(job)).ok();
        }
    }

    fn restore_namespace(&self) -> bool {
        let home = enter(self.home.as_fd());
        if let Err(error) = &home {
            tracing::error!(thread = self.name, %error, "cannot return to the host's network; the thread ends");
        }
        home.is_ok()
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.closed {
                return None;
            }
            state.idle += 1;
            self.work.wait(&mut state);
            state.idle -= 1;
        }
    }
}

/// Moves the calling thread into a network namespace.
pub(crate) fn enter(namespace: BorrowedFd<'_>) -> rustix::io::Result<()> {
    move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))
}

/// A descriptor of the calling thread's network namespace.
pub(crate) fn current_namespace() -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(
        "/proc/thread-self/ns/net",
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn jobs_run_on_few_threads_and_their_results_come_back() {
        let threads = Threads::new("test", 2).unwrap();
        let jobs = (0..100).map(|n| threads.run(move || (n, std::thread::current().id())));
        let answers = futures_util::future::join_all(jobs).await;
        let mut seen = std::collections::HashSet::new();
        for (n, answer) in answers.into_iter().enumerate() {
            let (echoed, thread) = answer.unwrap();
            assert_eq!(echoed, n);
            seen.insert(thread);
        }
        assert!(seen.len() <= 2);
    }

    #[tokio::test]
    async fn a_panic_in_a_job_costs_only_that_job() {
        let threads = Threads::new("test", 1).unwrap();
        let panicked = threads.run(|| panic!("on purpose")).await;
        assert!(panicked.is_err());
        assert_eq!(threads.run(|| 7).await.unwrap(), 7);
    }
}
