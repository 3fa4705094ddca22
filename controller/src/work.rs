//! The queue of instances: at most one worker per instance, a bounded number of workers, retries for ever with growing backoff.
//! Requests of users go before rollouts, and both before regular reconciles and retries. Instances that have failed for a while are
//! retried one by one, so far apart that most requests are left to the others. The queue is pure; [`run`] gives it the time.

mod queue;

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backoff::Backoff;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

pub use queue::{Depth, Lane, Queue};

/// How often long pauses are compared with what is needed now, if nothing else happens.
const REVIEW: Duration = Duration::from_secs(30);

/// When to reconcile a key again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// In sync: at the next regular reconcile.
    Settled(Duration),
    /// Something is in progress: poll after this time.
    Soon(Duration),
    /// It failed: after a growing backoff; after some failures it is queued with all that failed.
    Failed,
    /// Out of sync, and a user has to act: after this pause, queued with all that failed.
    Stuck(Duration),
    /// OCI did not carry out a request, or it waits for something that no watch reports: after at least this pause; after some
    /// pauses it is queued with all that failed.
    BackOff(Pause),
    /// No object is left.
    Gone,
}

/// A pause that grows each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// How much of it is left.
    pub left: Duration,
    /// Its number in the row; 1 is the first.
    pub number: u32,
}

/// When a key is to be reconciled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Now, even if it is backing off: something changed.
    Now,
    /// Now, behind requests of users, even if it is backing off.
    Rollout,
    /// Queued with all that has failed for a while.
    InTurn,
    /// After a while, if not before.
    After(Duration),
}

/// How failures are retried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retries {
    /// The pauses between attempts at one key.
    pub pauses: Backoff,
    /// How far attempts at different keys are apart that have failed for a while.
    pub apart: Duration,
}

/// How far off what was done is, at most, as things are now: a pause that was reckoned while there was little room for requests
/// is not waited for to its end when there is more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Longest {
    /// The next regular look.
    pub regular: Duration,
    /// The next look at what something is on its way of.
    pub soon: Duration,
}

/// Reconciles keys.
pub trait Worker<K>: Send + Sync + 'static {
    /// How failures are retried from now on.
    fn retries(&self) -> Retries;

    /// How far off what was done may be now. Where nothing is said, as far as it was put off.
    fn longest(&self) -> Longest {
        Longest { regular: Duration::MAX, soon: Duration::MAX }
    }

    /// Reconciles a key.
    fn work(&self, key: K) -> impl Future<Output = Next> + Send;
}

/// A queue that tasks share. Clones are the same queue.
#[derive(Debug)]
pub struct Work<K>(Arc<Shared<K>>);

#[derive(Debug)]
struct Shared<K> {
    queue: Mutex<Queue<K>>,
    news: Notify,
}

impl Pause {
    /// Until the first of two has ended, as early in its row as the earlier one: who begins to wait is not looked at in turn
    /// because another has waited for long.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
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
        // As long as nobody works, nothing fails.
        let never = Backoff { first: Duration::ZERO, cap: Duration::ZERO };
        let queue = Queue::new(Retries { pauses: never, apart: Duration::ZERO });
        Self(Arc::new(Shared { queue: Mutex::new(queue), news: Notify::new() }))
    }
}

impl<K: Clone + Debug + Eq + Hash + Ord + Send + 'static> Work<K> {
    /// Asks for a key to be looked at now.
    pub fn now(&self, key: K) {
        self.look_at(key, When::Now);
    }

    /// Asks for a key to be looked at.
    pub fn look_at(&self, key: K, when: When) {
        let now = Instant::now();
        let (lane, due) = match when {
            When::Now => (Lane::Wanted, now),
            When::Rollout => (Lane::Rollout, now),
            When::InTurn => (Lane::Again, now),
            When::After(pause) => (Lane::Regular, now + pause),
        };
        self.queue().add(key, lane, due);
        self.0.news.notify_one();
    }

    /// How much is waiting.
    #[must_use]
    pub fn depth(&self) -> Depth {
        self.queue().depth(Instant::now())
    }

    fn queue(&self) -> MutexGuard<'_, Queue<K>> {
        // Every change is complete in itself, so a panic elsewhere leaves it usable.
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reconciles all keys, at most `workers` keys at once, for ever. `chance` gives numbers in 0.0–1.0.
pub async fn run<K, W>(work: Work<K>, worker: Arc<W>, workers: usize, chance: impl Fn() -> f64)
where
    K: Clone + Debug + Eq + Hash + Ord + Send + 'static,
    W: Worker<K>,
{
    let mut tasks: JoinSet<(K, Next)> = JoinSet::new();
    work.queue().set_retries(worker.retries());
    let mut review = Instant::now() + REVIEW;
    loop {
        while tasks.len() < workers {
            let Some(key) = work.queue().take(Instant::now()) else { break };
            let worker = Arc::clone(&worker);
            tasks.spawn(async move {
                // In a task of its own, so that a panic is one key's failure; in a set, which stops it when this is dropped:
                // whoever lost or gave back the lease does nothing any more.
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
                        Next::Failed
                    }
                };
                (key, next)
            });
        }
        let due = work.queue().next_due().filter(|_| tasks.len() < workers);
        tokio::select! {
            () = work.0.news.notified() => {}
            () = sleep_until(review) => {
                review = Instant::now() + REVIEW;
                work.queue().quicken(worker.longest(), Instant::now());
            }
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
