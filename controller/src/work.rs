//! The queue of instances: at most one worker per instance, a bounded number of workers, retries forever with backoff.
//! Requests of users go before rollouts, and both before regular reconciles and retries. Instances that have failed for a
//! while are retried one by one, so far apart that most requests are left to the others. The queue is pure; [`run`] gives it
//! the time.

mod queue;

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backoff::Backoff;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

pub(crate) use queue::{Depth, Lane, Queue};

/// When to reconcile a key again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextReconcile {
    /// In sync: at the next regular reconcile.
    Settled(Duration),
    /// Something is in progress: poll after this time.
    Soon(Duration),
    /// It failed: after a growing backoff; after some failures it is queued with all that failed.
    Failed,
    /// Out of sync, and a person has to act: after this backoff, queued with all that failed.
    Stuck(Duration),
    /// OCI accepted a request but did not apply it, or it waits for a change that no watch reports: after at least this
    /// backoff. After some backoffs it is queued with all that failed.
    BackOff(Pause),
    /// No object is left.
    Gone,
}

/// A backoff that grows each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pause {
    /// How much of it is left.
    pub left: Duration,
    /// Its number in the sequence; 1 is the first.
    pub number: u32,
}

/// How failures are retried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Retries {
    /// The backoff between attempts at one key.
    pub pauses: Backoff,
    /// The interval between attempts at different keys that have failed for a while.
    pub apart: Duration,
}

pub(crate) trait Worker<K>: Send + Sync + 'static {
    /// How failures are retried from now on.
    fn retries(&self) -> Retries;

    fn work(&self, key: K) -> impl Future<Output = NextReconcile> + Send;
}

/// A queue that tasks share. Clones are the same queue.
#[derive(Debug)]
pub(crate) struct Work<K>(Arc<SharedQueue<K>>);

#[derive(Debug)]
struct SharedQueue<K> {
    queue: Mutex<Queue<K>>,
    news: Notify,
}

impl Pause {
    /// If one of two causes is replaced by a newer one, the older position in the queue stays.
    #[must_use]
    pub(crate) fn and(self, other: Self) -> Self {
        Self { left: self.left.min(other.left), number: self.number.min(other.number) }
    }
}

impl<K> Clone for Work<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Clone + Debug + Eq + Hash + Ord + Send + 'static> Default for Work<K> {
    fn default() -> Self {
        // Until a worker runs, nothing fails.
        let never = Backoff { first: Duration::ZERO, cap: Duration::ZERO };
        let queue = Queue::new(Retries { pauses: never, apart: Duration::ZERO });
        Self(Arc::new(SharedQueue { queue: Mutex::new(queue), news: Notify::new() }))
    }
}

impl<K: Clone + Debug + Eq + Hash + Ord + Send + 'static> Work<K> {
    pub(crate) fn now(&self, key: K) {
        self.enqueue(key, Lane::Requested, Duration::ZERO);
    }

    /// Queues a key for a time from now, even if it is backing off.
    pub(crate) fn enqueue(&self, key: K, lane: Lane, after: Duration) {
        self.queue().add(key, lane, Instant::now() + after);
        self.0.news.notify_one();
    }

    /// How many keys wait.
    pub(crate) fn depth(&self) -> Depth {
        self.queue().depth(Instant::now())
    }

    fn queue(&self) -> MutexGuard<'_, Queue<K>> {
        // Each change is complete by itself, so a panic elsewhere leaves it usable.
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reconciles all keys, at most `workers` keys at once; never returns. `chance` gives numbers in 0.0–1.0.
pub(crate) async fn run<K, W>(work: Work<K>, worker: Arc<W>, workers: usize, chance: impl Fn() -> f64)
where
    K: Clone + Debug + Eq + Hash + Ord + Send + 'static,
    W: Worker<K>,
{
    let mut tasks: JoinSet<(K, NextReconcile)> = JoinSet::new();
    work.queue().set_retries(worker.retries());
    loop {
        while tasks.len() < workers {
            let Some(key) = work.queue().take(Instant::now()) else { break };
            let worker = Arc::clone(&worker);
            tasks.spawn(async move {
                // In its own task, so that a panic fails only one key. In a set, which aborts it when this is dropped: a
                // replica that lost or released the Lease does nothing more.
                let mut inner = JoinSet::new();
                inner.spawn({
                    let key = key.clone();
                    async move { worker.work(key).await }
                });
                let next = match inner.join_next().await {
                    Some(Ok(next)) => next,
                    ended => {
                        let error = ended.and_then(Result::err).map(|error| error.to_string());
                        tracing::error!(event = "work.panicked", ?key, error);
                        NextReconcile::Failed
                    }
                };
                (key, next)
            });
        }
        let due = work.queue().next_due().filter(|_| tasks.len() < workers);
        // Cancel-safe: a notification that is not waited for stays, the timer is set again from a stored time, and `join_next`
        // loses no result.
        tokio::select! {
            () = work.0.news.notified() => {}
            () = async { sleep_until(due.unwrap_or_else(Instant::now)).await }, if due.is_some() => {}
            Some(ended) = tasks.join_next() => {
                if let Ok((key, next)) = ended {
                    let mut queue = work.queue();
                    queue.set_retries(worker.retries());
                    queue.done(&key, next, Instant::now(), chance());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
