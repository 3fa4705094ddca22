//! The order of reconciles, with a clock that the tests advance.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

const PAUSES: Backoff = Backoff { first: Duration::from_secs(1), cap: Duration::from_secs(60) };
const RETRIES: Retries = Retries { pauses: PAUSES, apart: Duration::ZERO };
const SECOND: Duration = Duration::from_secs(1);

fn queue() -> (Queue<&'static str>, Instant) {
    (Queue::new(RETRIES), Instant::now())
}

#[tokio::test(start_paused = true)]
async fn a_key_is_taken_once_until_it_is_done() {
    let (mut queue, now) = queue();
    queue.add("a", Lane::Requested, now);
    queue.add("a", Lane::Requested, now);
    assert_eq!((queue.take(now), queue.take(now)), (Some("a"), None));
    queue.add("a", Lane::Requested, now);
    assert_eq!(queue.take(now), None, "a worker has it");
    queue.done(&"a", NextReconcile::Settled(SECOND * 300), now, 1.0);
    assert_eq!(queue.take(now), Some("a"), "it was requested meanwhile");
}

#[tokio::test(start_paused = true)]
async fn the_longest_due_key_comes_first() {
    let (mut queue, now) = queue();
    queue.add("later", Lane::Requested, now + SECOND);
    queue.add("b", Lane::Requested, now);
    queue.add("a", Lane::Requested, now - SECOND);
    assert_eq!([queue.take(now), queue.take(now), queue.take(now)], [Some("a"), Some("b"), None]);
    assert_eq!(queue.next_due(), Some(now + SECOND));
    queue.add("later", Lane::Requested, now);
    assert_eq!(queue.take(now), Some("later"), "requested earlier");
}

#[tokio::test(start_paused = true)]
async fn backoff_grows_to_its_cap_and_a_change_ends_it() {
    let (mut queue, mut now) = queue();
    queue.add("a", Lane::Requested, now);
    let mut pauses = Vec::new();
    for _ in 0..9 {
        queue.take(now).unwrap();
        queue.done(&"a", NextReconcile::Failed, now, 1.0);
        let due = queue.next_due().unwrap();
        pauses.push((due - now).as_secs());
        now = due;
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    queue.take(now).unwrap();
    queue.done(&"a", NextReconcile::Failed, now, 1.0);
    queue.add("a", Lane::Requested, now);
    assert_eq!(queue.take(now), Some("a"));
    queue.done(&"a", NextReconcile::Soon(SECOND), now, 1.0);
    queue.take(now + SECOND).unwrap();
    queue.done(&"a", NextReconcile::Failed, now, 1.0);
    assert_eq!(queue.next_due(), Some(now + SECOND), "a success forgets the failures");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_key_leaves_nothing() {
    let (mut queue, now) = queue();
    queue.add("a", Lane::Requested, now);
    queue.take(now).unwrap();
    queue.done(&"a", NextReconcile::Gone, now, 1.0);
    assert_eq!((queue.next_due(), queue.depth(now)), (None, Depth::default()));
}

#[tokio::test(start_paused = true)]
async fn regular_reconciles_are_spread() {
    let (mut queue, now) = queue();
    for (key, chance) in [("a", 0.0), ("b", 0.5)] {
        queue.add(key, Lane::Requested, now);
        queue.take(now).unwrap();
        queue.done(&key, NextReconcile::Settled(SECOND * 300), now, chance);
    }
    assert_eq!(queue.take(now + SECOND * 270), Some("a"));
    assert_eq!((queue.take(now + SECOND * 284), queue.take(now + SECOND * 285)), (None, Some("b")));
}

/// Instances that always fail; the next ones are reconciled regularly.
const REFUSED: u32 = 3_000;
const REGULAR: u32 = 4_000;
/// From here on they fail three times and then succeed; from the next constant on, they succeed at the second reconcile,
/// after a poll.
const PASSING: u32 = 5_000;
const POLLED: u32 = 6_000;
/// These are polled forever.
const ENDLESS: u32 = 7_000;
/// These are of a rollout: attached at the first reconcile, in sync at the next one, after a poll.
const ROLLOUT: u32 = 10_000;
/// A reconcile's calls at twenty a second, one reconcile after the other: parallel ones do not enlarge the budget.
const LOOK: Duration = Duration::from_millis(150);

/// Thousands of instances, most of them failing, and a clock.
struct Crowd {
    queue: Queue<u32>,
    now: Instant,
    looks: Vec<u32>,
}

impl Crowd {
    fn new() -> Self {
        let pauses = Backoff { first: SECOND, cap: SECOND * 120 };
        let queue = Queue::new(Retries { pauses, apart: LOOK * 3 });
        let mut crowd = Self { queue, now: Instant::now(), looks: Vec::new() };
        (0..REFUSED).for_each(|key| crowd.queue.add(key, Lane::Requested, crowd.now));
        (REFUSED..REGULAR).for_each(|key| crowd.queue.add(key, Lane::Regular, crowd.now));
        crowd
    }

    /// One reconcile, or the time of one.
    fn look(&mut self) -> Option<u32> {
        let key = self.queue.take(self.now);
        self.now += LOOK;
        if let Some(key) = key {
            let next = match key {
                _ if key < REFUSED => NextReconcile::Failed,
                _ if key < REGULAR => NextReconcile::Settled(SECOND * 7000),
                _ if key < POLLED && self.looks_at(key) < 3 => NextReconcile::Failed,
                _ if key < ENDLESS && self.looks_at(key) > 0 => NextReconcile::Gone,
                _ if key >= ROLLOUT && self.looks_at(key) > 0 => NextReconcile::Settled(SECOND * 7000),
                _ if key >= ROLLOUT => NextReconcile::Soon(SECOND * 15),
                _ => NextReconcile::Soon(SECOND * 3),
            };
            self.looks.push(key);
            self.queue.done(&key, next, self.now, f64::from(self.looks.len() as u32 % 100) / 100.0);
        }
        key
    }

    fn looks_at(&self, key: u32) -> usize {
        self.looks.iter().filter(|looked| **looked == key).count()
    }

    fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.now < end {
            self.look();
        }
    }

    /// The time until a key is reconciled.
    fn wait_for(&mut self, key: u32) -> Duration {
        let began = self.now;
        while self.now < began + SECOND * 7200 {
            if self.look() == Some(key) {
                return self.now - began;
            }
        }
        panic!("{key} was not reconciled: {:?}", self.queue.depth(self.now));
    }
}

#[tokio::test(start_paused = true)]
async fn new_deleted_and_polled_keys_never_wait_for_failing_keys() {
    let mut crowd = Crowd::new();
    crowd.run(SECOND * 3600);
    assert_eq!(crowd.queue.depth(crowd.now).failing, REFUSED as usize);
    for key in POLLED..POLLED + 20 {
        crowd.queue.add(key, Lane::Requested, crowd.now);
        let waited = [crowd.wait_for(key), crowd.wait_for(key)];
        assert!(waited[0] <= SECOND / 2 && waited[1] <= SECOND * 4, "{key}: {waited:?}");
    }
    // Keys whose failures pass do not wait for those whose failures stay.
    for key in PASSING..PASSING + 20 {
        crowd.queue.add(key, Lane::Requested, crowd.now);
        let waited: Duration = (0..4).map(|_| crowd.wait_for(key)).sum();
        assert!(waited <= SECOND * 9, "{key}: {waited:?}");
    }
    // A failing key that a user changed or deleted.
    crowd.queue.add(7, Lane::Requested, crowd.now);
    assert!(crowd.wait_for(7) <= SECOND / 2);
}

#[tokio::test(start_paused = true)]
async fn failing_and_regular_keys_get_their_share() {
    let mut crowd = Crowd::new();
    crowd.run(SECOND * 3600);
    // The wanted keys never run out.
    (0..100).for_each(|number| crowd.queue.add(ENDLESS + number, Lane::Requested, crowd.now));
    crowd.looks.clear();
    crowd.run(SECOND * 7200);
    let looks = |fits: &dyn Fn(u32) -> bool| crowd.looks.iter().filter(|key| fits(**key)).count();
    let (refused, regular) = (looks(&|key| key < REFUSED), looks(&|key| (REFUSED..REGULAR).contains(&key)));
    assert!(refused >= 9_000, "{refused} of {}", crowd.looks.len());
    assert!(regular >= 1_000, "{regular} of {}", crowd.looks.len());
    // Even with little other work, they do not take all requests.
    let mut crowd = Crowd::new();
    crowd.run(SECOND * 3600);
    crowd.looks.clear();
    crowd.run(SECOND * 600);
    assert!(crowd.looks.len() <= 4_000 / 2, "{}", crowd.looks.len());
}

#[tokio::test(start_paused = true)]
async fn a_single_request_does_not_wait_for_a_rollout() {
    let mut crowd = Crowd::new();
    crowd.run(SECOND * 3600);
    let many = 5_000;
    (ROLLOUT..ROLLOUT + many).for_each(|key| crowd.queue.add(key, Lane::Rollout, crowd.now));
    crowd.looks.clear();
    let began = crowd.now;
    for key in POLLED..POLLED + 60 {
        crowd.run(SECOND * 10);
        crowd.queue.add(key, Lane::Requested, crowd.now);
        let waited = crowd.wait_for(key);
        // As many polls of the rollout come first as fell due during one reconcile.
        assert!(waited <= SECOND, "{key}: {waited:?}");
    }
    // Half of all reconciles are new keys of the rollout; the others are its polls and failing keys.
    let looked = crowd.looks.iter().filter(|key| **key >= ROLLOUT).collect::<std::collections::BTreeSet<_>>().len();
    let all = (crowd.now - began).as_millis() / LOOK.as_millis();
    assert!(looked as u128 >= all / 3, "{looked} new ones in {all} reconciles");
    crowd.looks.clear();
    crowd.run(SECOND * 600);
    let refused = crowd.looks.iter().filter(|key| **key < REFUSED).count();
    assert!(refused >= 200, "failing keys get their share: {refused}");
}

#[tokio::test(start_paused = true)]
async fn retries_are_queued_and_changes_do_not_wait_for_them() {
    let (mut queue, now) = (Queue::new(Retries { apart: SECOND * 10, ..RETRIES }), Instant::now());
    ["a", "b", "c"].iter().for_each(|key| queue.add(*key, Lane::Again, now));
    assert_eq!((queue.take(now), queue.take(now)), (Some("a"), None));
    assert_eq!((queue.next_due(), queue.depth(now).due), (Some(now + SECOND * 10), 2));
    queue.add("c", Lane::Requested, now);
    assert_eq!(queue.take(now), Some("c"));
    queue.done(&"c", NextReconcile::Stuck(SECOND * 300), now, 1.0);
    queue.done(&"a", NextReconcile::Failed, now, 1.0);
    assert_eq!(queue.depth(now), Depth { due: 1, later: 2, failing: 1, ..Depth::default() });
    let taken = [10, 20, 30, 300].map(|seconds| queue.take(now + SECOND * seconds));
    assert_eq!(taken, [Some("b"), Some("a"), None, Some("c")]);
    queue.done(&"c", NextReconcile::BackOff(Pause { left: SECOND * 100, number: 9 }), now + SECOND * 300, 0.0);
    assert_eq!([399, 400].map(|second| queue.take(now + SECOND * second)), [None, Some("c")], "all of its backoff");
}

#[tokio::test(start_paused = true)]
async fn a_failing_key_joins_the_retry_lane_after_a_minute() {
    let (mut queue, mut now) = (Queue::new(Retries { apart: SECOND * 1000, ..RETRIES }), Instant::now());
    queue.add("a", Lane::Requested, now);
    queue.add("other", Lane::Again, now);
    assert_eq!(queue.take(now), Some("a"));
    queue.done(&"a", NextReconcile::Failed, now, 1.0);
    assert_eq!(queue.take(now), Some("other"));
    queue.done(&"other", NextReconcile::Gone, now, 1.0);
    let begun = now;
    let mut tried = Vec::new();
    for _ in 0..8 {
        now = queue.next_due().unwrap();
        tried.push((now - begun).as_secs());
        assert_eq!(queue.take(now), Some("a"));
        queue.done(&"a", NextReconcile::Failed, now, 1.0);
    }
    assert_eq!(tried, [1, 3, 7, 15, 31, 63, 1000, 2000]);
    // A backoff without a failure is another sequence; its seventh joins the lane, too.
    for (number, due) in [(6, SECOND * 15), (7, SECOND * 985)] {
        now = queue.next_due().unwrap();
        assert_eq!(queue.take(now), Some("a"));
        queue.done(&"a", NextReconcile::BackOff(Pause { left: SECOND * 15, number }), now, 0.0);
        assert_eq!(queue.next_due(), Some(now + due));
    }
    // It changed.
    queue.add("a", Lane::Requested, now);
    assert_eq!(queue.take(now), Some("a"));
    queue.done(&"a", NextReconcile::Failed, now, 1.0);
    assert_eq!(queue.next_due(), Some(now + SECOND));
}

#[derive(Debug, Default)]
struct CountingWorker {
    now: AtomicUsize,
    most: AtomicUsize,
    all: AtomicUsize,
}

impl Worker<u32> for CountingWorker {
    fn retries(&self) -> Retries {
        RETRIES
    }

    async fn work(&self, key: u32) -> NextReconcile {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        tokio::time::sleep(SECOND).await;
        self.now.fetch_sub(1, Ordering::SeqCst);
        self.all.fetch_add(1, Ordering::SeqCst);
        assert!(key != 13, "a panic fails only its key");
        NextReconcile::Gone
    }
}

#[tokio::test(start_paused = true)]
async fn workers_are_bounded_and_a_panic_fails_one_key() {
    let work = Work::default();
    (0..20).for_each(|key| work.now(key));
    let worker = Arc::new(CountingWorker::default());
    let running = tokio::spawn(run(work.clone(), worker.clone(), 4, || 1.0));
    tokio::time::sleep(SECOND * 6).await;
    running.abort();
    assert_eq!(worker.most.load(Ordering::SeqCst), 4);
    assert!(worker.all.load(Ordering::SeqCst) >= 20);
    let left = work.depth();
    assert_eq!(left.failing, 1, "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn no_worker_runs_after_the_work_is_dropped() {
    let work = Work::default();
    (0..8).for_each(|key| work.now(key));
    let worker = Arc::new(CountingWorker::default());
    // As after losing the Lease or on SIGTERM: the future is dropped, and the process lives on for a while.
    let ended = tokio::time::timeout(SECOND * 3 / 2, run(work.clone(), worker.clone(), 4, || 1.0)).await;
    assert!(ended.is_err());
    tokio::time::sleep(SECOND * 10).await;
    assert_eq!(worker.all.load(Ordering::SeqCst), 4, "the first four were done, the others were in progress");
}

/// Fails, and can set the longest backoff.
struct FailingWorker {
    longest: Mutex<Duration>,
    at: Mutex<Vec<Instant>>,
}

impl Worker<u32> for FailingWorker {
    fn retries(&self) -> Retries {
        Retries { pauses: Backoff { first: SECOND, cap: *self.longest.lock().unwrap() }, ..RETRIES }
    }

    async fn work(&self, _: u32) -> NextReconcile {
        self.at.lock().unwrap().push(Instant::now());
        NextReconcile::Failed
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_longest_backoff_applies_from_the_next_failure() {
    let work = Work::default();
    work.now(1);
    let worker = Arc::new(FailingWorker { longest: Mutex::new(SECOND * 100), at: Mutex::default() });
    let running = tokio::spawn(run(work, worker.clone(), 1, || 1.0));
    tokio::time::sleep(SECOND * 10).await;
    *worker.longest.lock().unwrap() = SECOND * 3;
    tokio::time::sleep(SECOND * 15).await;
    running.abort();
    let at = worker.at.lock().unwrap().clone();
    let pauses: Vec<u64> = at.windows(2).map(|two| (two[1] - two[0]).as_secs()).collect();
    assert_eq!(pauses, [1, 2, 4, 8, 3, 3, 3]);
}
