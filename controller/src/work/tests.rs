//! Who is worked on when, by a clock that the tests turn.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

const RETRY: Backoff = Backoff { first: Duration::from_secs(1), cap: Duration::from_secs(60) };
const SECOND: Duration = Duration::from_secs(1);

fn queue() -> (Queue<&'static str>, Instant) {
    (Queue::new(RETRY), Instant::now())
}

#[tokio::test(start_paused = true)]
async fn a_key_is_given_out_once_until_it_is_done() {
    let (mut queue, now) = queue();
    queue.add("a", now);
    queue.add("a", now);
    assert_eq!((queue.take(now), queue.take(now)), (Some("a"), None));
    queue.add("a", now);
    assert_eq!(queue.take(now), None, "somebody works on it");
    queue.done(&"a", Next::Settled(SECOND * 300), now, 1.0);
    assert_eq!(queue.take(now), Some("a"), "it was asked for meanwhile");
}

#[tokio::test(start_paused = true)]
async fn what_is_due_longest_comes_first() {
    let (mut queue, now) = queue();
    queue.add("later", now + SECOND);
    queue.add("b", now);
    queue.add("a", now - SECOND);
    assert_eq!([queue.take(now), queue.take(now), queue.take(now)], [Some("a"), Some("b"), None]);
    assert_eq!(queue.next_due(), Some(now + SECOND));
    queue.add("later", now);
    assert_eq!(queue.take(now), Some("later"), "asked for sooner");
}

#[tokio::test(start_paused = true)]
async fn pauses_grow_while_it_fails_to_their_cap_and_news_cut_them_short() {
    let (mut queue, mut now) = queue();
    queue.add("a", now);
    let mut pauses = Vec::new();
    for _ in 0..9 {
        queue.take(now).unwrap();
        queue.done(&"a", Next::Failed, now, 1.0);
        let due = queue.next_due().unwrap();
        pauses.push((due - now).as_secs());
        now = due;
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    queue.take(now).unwrap();
    queue.done(&"a", Next::Failed, now, 1.0);
    queue.add("a", now);
    assert_eq!(queue.take(now), Some("a"));
    queue.done(&"a", Next::Soon(SECOND), now, 1.0);
    queue.take(now + SECOND).unwrap();
    queue.done(&"a", Next::Failed, now, 1.0);
    assert_eq!(queue.next_due(), Some(now + SECOND), "a success forgets the failures");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_gone_leaves_nothing() {
    let (mut queue, now) = queue();
    queue.add("a", now);
    queue.take(now).unwrap();
    queue.done(&"a", Next::Gone, now, 1.0);
    assert_eq!((queue.next_due(), queue.depth(now)), (None, Depth::default()));
}

#[tokio::test(start_paused = true)]
async fn regular_looks_are_spread() {
    let (mut queue, now) = queue();
    for (key, chance) in [("a", 0.0), ("b", 0.5)] {
        queue.add(key, now);
        queue.take(now).unwrap();
        queue.done(&key, Next::Settled(SECOND * 300), now, chance);
    }
    assert_eq!(queue.take(now + SECOND * 270), Some("a"));
    assert_eq!((queue.take(now + SECOND * 284), queue.take(now + SECOND * 285)), (None, Some("b")));
}

#[derive(Debug, Default)]
struct Counting {
    now: AtomicUsize,
    most: AtomicUsize,
    all: AtomicUsize,
}

impl Worker<u32> for Counting {
    fn retry(&self) -> Backoff {
        RETRY
    }

    async fn work(&self, key: u32) -> Next {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        tokio::time::sleep(SECOND).await;
        self.now.fetch_sub(1, Ordering::SeqCst);
        self.all.fetch_add(1, Ordering::SeqCst);
        assert!(key != 13, "a panic is one key's failure");
        Next::Gone
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_than_so_many_are_worked_on_at_once_and_a_panic_is_one_keys_failure() {
    let work = Work::default();
    (0..20).for_each(|key| work.now(key));
    let worker = Arc::new(Counting::default());
    let running = tokio::spawn(run(work.clone(), worker.clone(), 4, || 1.0));
    tokio::time::sleep(SECOND * 6).await;
    running.abort();
    assert_eq!(worker.most.load(Ordering::SeqCst), 4);
    assert!(worker.all.load(Ordering::SeqCst) >= 20);
    let left = work.depth();
    assert_eq!(left.failing, 1, "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn nobody_works_on_when_the_work_is_dropped() {
    let work = Work::default();
    (0..8).for_each(|key| work.now(key));
    let worker = Arc::new(Counting::default());
    // As losing the lease or SIGTERM does: the future is dropped, and the process goes on for a while.
    let ended = tokio::time::timeout(SECOND * 3 / 2, run(work.clone(), worker.clone(), 4, || 1.0)).await;
    assert!(ended.is_err());
    tokio::time::sleep(SECOND * 10).await;
    assert_eq!(worker.all.load(Ordering::SeqCst), 4, "the first four were done, the others were being worked on");
}

/// Fails, and may be told a longest pause.
struct Failing {
    longest: Mutex<Duration>,
    at: Mutex<Vec<Instant>>,
}

impl Worker<u32> for Failing {
    fn retry(&self) -> Backoff {
        Backoff { first: SECOND, cap: *self.longest.lock().unwrap() }
    }

    async fn work(&self, _: u32) -> Next {
        self.at.lock().unwrap().push(Instant::now());
        Next::Failed
    }
}

#[tokio::test(start_paused = true)]
async fn another_longest_pause_holds_from_the_next_failure_on() {
    let work = Work::default();
    work.now(1);
    let worker = Arc::new(Failing { longest: Mutex::new(SECOND * 100), at: Mutex::default() });
    let running = tokio::spawn(run(work, worker.clone(), 1, || 1.0));
    tokio::time::sleep(SECOND * 10).await;
    *worker.longest.lock().unwrap() = SECOND * 3;
    tokio::time::sleep(SECOND * 15).await;
    running.abort();
    let at = worker.at.lock().unwrap().clone();
    let pauses: Vec<u64> = at.windows(2).map(|two| (two[1] - two[0]).as_secs()).collect();
    assert_eq!(pauses, [1, 2, 4, 8, 3, 3, 3]);
}
