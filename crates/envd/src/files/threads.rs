//! Threads for work on files: made when there is some, gone when there was none for a while.
//!
//! Not tokio's: those need one that stays, because a runtime without any panics when a sandbox is
//! full of processes and no new one can be made. An idle thread costs every sandbox 70 KiB. Here
//! the work is done on the spot instead, which keeps others waiting but keeps files reachable.

use std::{
    collections::VecDeque,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    thread,
    time::Duration,
};

use tokio::sync::oneshot;

const MOST_THREADS: usize = 4;
const STACK: usize = 256 << 10;
const IDLE: Duration = Duration::from_secs(5);

type Job = Box<dyn FnOnce() + Send>;

static POOL: Pool = Pool::new();

/// Does something that may block, beside everything else, from now on. It is done to its end even
/// when nobody waits for it any more.
pub(crate) fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> BlockingTask<T> {
    let (sender, receiver) = oneshot::channel();
    POOL.submit(Box::new(move || {
        let _nobody_waits = sender.send(work());
    }));
    BlockingTask(receiver)
}

/// What comes of it.
#[must_use = "somebody must see whether it worked"]
pub(crate) struct BlockingTask<T>(oneshot::Receiver<T>);

impl<T> Future for BlockingTask<T> {
    type Output = io::Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let panicked = |_| io::Error::other("work on a file panicked");
        Pin::new(&mut self.0).poll(cx).map_err(panicked)
    }
}

struct Pool {
    state: Mutex<State>,
    job_added: Condvar,
}

struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

impl Pool {
    const fn new() -> Self {
        Self {
            state: Mutex::new(State {
                jobs: VecDeque::new(),
                threads: 0,
                idle: 0,
            }),
            job_added: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn submit(&'static self, job: Job) {
        self.submit_with(job, |pool| {
            let named = thread::Builder::new().name("files".to_owned());
            named.stack_size(STACK).spawn(|| pool.work()).map(drop)
        });
    }

    fn submit_with(&'static self, job: Job, start: impl FnOnce(&'static Self) -> io::Result<()>) {
        let mut state = self.state();
        state.jobs.push_back(job);
        if state.idle >= state.jobs.len() || state.threads == MOST_THREADS {
            drop(state);
            self.job_added.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        if start(self).is_ok() {
            return;
        }
        let mut state = self.state();
        state.threads -= 1;
        // Those that are there do it when they are done with theirs.
        while state.threads == 0
            && let Some(job) = state.jobs.pop_front()
        {
            drop(state);
            run(job);
            state = self.state();
        }
    }

    /// A thread's life.
    fn work(&self) {
        let mut state = self.state();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                run(job);
                state = self.state();
                continue;
            }
            state.idle += 1;
            let waited = self.job_added.wait_timeout(state, IDLE);
            let timeout;
            (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
            if timeout.timed_out() && state.jobs.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

/// Whoever waits for it sees that it panicked; the thread goes on.
fn run(job: Job) {
    let _told = catch_unwind(AssertUnwindSafe(job));
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier, mpsc};

    use super::*;

    fn pool() -> &'static Pool {
        Box::leak(Box::new(Pool::new()))
    }

    #[test]
    fn jobs_run_beside_each_other() {
        let (pool, all_there) = (pool(), Arc::new(Barrier::new(MOST_THREADS)));
        let (sender, receiver) = mpsc::channel();
        for _ in 0..MOST_THREADS {
            let (all_there, sender) = (Arc::clone(&all_there), sender.clone());
            pool.submit(Box::new(move || {
                all_there.wait();
                sender.send(()).unwrap();
            }));
        }
        drop(sender);
        assert_eq!(receiver.iter().count(), MOST_THREADS);
    }

    #[test]
    fn more_jobs_than_threads_are_all_done() {
        let (pool, (sender, receiver)) = (pool(), mpsc::channel());
        for number in 0..100 {
            let sender = sender.clone();
            pool.submit(Box::new(move || sender.send(number).unwrap()));
        }
        drop(sender);
        let mut done: Vec<_> = receiver.iter().collect();
        done.sort_unstable();
        assert_eq!(done, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn without_a_thread_the_work_is_done_on_the_spot() {
        let (pool, here) = (pool(), thread::current().id());
        let (sender, receiver) = mpsc::channel();
        let job = Box::new(move || sender.send(thread::current().id()).unwrap());
        pool.submit_with(job, |_| Err(io::ErrorKind::WouldBlock.into()));
        assert_eq!(receiver.try_recv(), Ok(here));
        assert_eq!(pool.state().threads, 0);
    }

    #[test]
    fn a_job_that_panics_ends_no_thread() {
        let pool = pool();
        let (sender, receiver) = mpsc::channel();
        pool.submit(Box::new(|| panic!("of this job")));
        pool.submit(Box::new(move || sender.send(()).unwrap()));
        receiver.recv().unwrap();
        assert!(pool.state().threads > 0);
    }

    #[tokio::test]
    async fn who_waits_gets_the_result_or_that_there_is_none() {
        assert_eq!(blocking(|| 7).await.unwrap(), 7);
        assert!(blocking(|| panic!("of this job")).await.is_err());
    }
}
