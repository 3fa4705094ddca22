//! Who is worked on when, by a clock that the tests turn.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

const PAUSES: Backoff = Backoff { first: Duration::from_secs(1), cap: Duration::from_secs(60) };
const RETRIES: Retries = Retries { pauses: PAUSES, apart: Duration::ZERO };
const SECOND: Duration = Duration::from_secs(1);

fn queue() -> (Queue<&'static str>, Instant) {
    (Queue::new(RETRIES), Instant::now())
}

#[tokio::test(start_paused = true)]
async fn a_key_is_given_out_once_until_it_is_done() {
    let (mut queue, now) = queue();
    queue.add("a", Lane::Wanted, now);
    queue.add("a", Lane::Wanted, now);
    assert_eq!((queue.take(now), queue.take(now)), (Some("a"), None));
    queue.add("a", Lane::Wanted, now);
    assert_eq!(queue.take(now), None, "somebody works on it");
    queue.done(&"a", Next::Settled(SECOND * 300), now, 1.0);
    assert_eq!(queue.take(now), Some("a"), "it was asked for meanwhile");
}

#[tokio::test(start_paused = true)]
async fn what_is_due_longest_comes_first() {
    let (mut queue, now) = queue();
    queue.add("later", Lane::Wanted, now + SECOND);
    queue.add("b", Lane::Wanted, now);
    queue.add("a", Lane::Wanted, now - SECOND);
    assert_eq!([queue.take(now), queue.take(now), queue.take(now)], [Some("a"), Some("b"), None]);
    assert_eq!(queue.next_due(), Some(now + SECOND));
    queue.add("later", Lane::Wanted, now);
    assert_eq!(queue.take(now), Some("later"), "asked for sooner");
}

#[tokio::test(start_paused = true)]
async fn pauses_grow_while_it_fails_to_their_cap_and_news_cut_them_short() {
    let (mut queue, mut now) = queue();
    queue.add("a", Lane::Wanted, now);
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
    queue.add("a", Lane::Wanted, now);
    assert_eq!(queue.take(now), Some("a"));
    queue.done(&"a", Next::Soon(SECOND), now, 1.0);
    queue.take(now + SECOND).unwrap();
    queue.done(&"a", Next::Failed, now, 1.0);
    assert_eq!(queue.next_due(), Some(now + SECOND), "a success forgets the failures");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_gone_leaves_nothing() {
    let (mut queue, now) = queue();
    queue.add("a", Lane::Wanted, now);
    queue.take(now).unwrap();
    queue.done(&"a", Next::Gone, now, 1.0);
    assert_eq!((queue.next_due(), queue.depth(now)), (None, Depth::default()));
}

#[tokio::test(start_paused = true)]
async fn regular_looks_are_spread() {
    let (mut queue, now) = queue();
    for (key, chance) in [("a", 0.0), ("b", 0.5)] {
        queue.add(key, Lane::Wanted, now);
        queue.take(now).unwrap();
        queue.done(&key, Next::Settled(SECOND * 300), now, chance);
    }
    assert_eq!(queue.take(now + SECOND * 270), Some("a"));
    assert_eq!((queue.take(now + SECOND * 284), queue.take(now + SECOND * 285)), (None, Some("b")));
}

/// Instances that are refused whatever is done; others are looked at regularly.
const REFUSED: u32 = 3_000;
const REGULAR: u32 = 4_000;
/// Those from here on fail three times and have all they want then; from the next on, at the second look, after a poll.
const PASSING: u32 = 5_000;
const POLLED: u32 = 6_000;
/// These are polled for ever.
const ENDLESS: u32 = 7_000;
/// These are of a rollout: they are attached at the first look, and as asked for at the next one, after a poll.
const ROLLOUT: u32 = 10_000;
/// A look's calls at twenty a second, one look after the other: more than one at a time do not make the budget larger.
const LOOK: Duration = Duration::from_millis(150);

/// Thousands of instances, most of them refused, and a clock.
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
        (0..REFUSED).for_each(|key| crowd.queue.add(key, Lane::Wanted, crowd.now));
        (REFUSED..REGULAR).for_each(|key| crowd.queue.add(key, Lane::Regular, crowd.now));
        crowd
    }

    /// One look, or the time that one takes.
    fn look(&mut self) -> Option<u32> {
        let key = self.queue.take(self.now);
        self.now += LOOK;
        if let Some(key) = key {
            let next = match key {
                _ if key < REFUSED => Next::Failed,
                _ if key < REGULAR => Next::Settled(SECOND * 7000),
                _ if key < POLLED && self.looks_at(key) < 3 => Next::Failed,
                _ if key < ENDLESS && self.looks_at(key) > 0 => Next::Gone,
                _ if key >= ROLLOUT && self.looks_at(key) > 0 => Next::Settled(SECOND * 7000),
                _ if key >= ROLLOUT => Next::Soon(SECOND * 15),
                _ => Next::Soon(SECOND * 3),
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

    /// How long it takes until a key is looked at.
    fn wait_for(&mut self, key: u32) -> Duration {
        let began = self.now;
        while self.now < began + SECOND * 7200 {
            if self.look() == Some(key) {
                return self.now - began;
            }
        }
        panic!("nobody came to {key}: {:?}", self.queue.depth(self.now));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_new_goes_or_is_polled_does_not_wait_for_what_fails_however_much_that_is() {
    let mut crowd = Crowd::new();
    crowd.run(SECOND * 3600);
    assert_eq!(crowd.queue.depth(crowd.now).failing, REFUSED as usize);
    for key in POLLED..POLLED + 20 {
        crowd.queue.add(key, Lane::Wanted, crowd.now);
        let waited = [crowd.wait_for(key), crowd.wait_for(key)];
        assert!(waited[0] <= SECOND / 2 && waited[1] <= SECOND * 4, "{key}: {waited:?}");
    }
    // What fails and passes does not wait for what does not pass.
    for key in PASSING..PASSING + 20 {
        crowd.queue.add(key, Lane::Wanted, crowd.now);
        let waited: Duration = (0..4).map(|_| crowd.wait_for(key)).sum();
        assert!(waited <= SECOND * 9, "{key}: {waited:?}");
    }
    // Of those that were refused, one that somebody changed or deleted.
    crowd.queue.add(7, Lane::Wanted, crowd.now);
    assert!(crowd.wait_for(7) <= SECOND / 2);
}

#[tokio::test(start_paused = true)]
async fn what_fails_and_what_is_regular_have_their_part() {
    let mut crowd = Crowd::new();
    crowd.run(SECOND * 3600);
    // So much is wanted that there is never an end of it.
    (0..100).for_each(|number| crowd.queue.add(ENDLESS + number, Lane::Wanted, crowd.now));
    crowd.looks.clear();
    crowd.run(SECOND * 7200);
    let looks = |fits: &dyn Fn(u32) -> bool| crowd.looks.iter().filter(|key| fits(**key)).count();
    let (refused, regular) = (looks(&|key| key < REFUSED), looks(&|key| (REFUSED..REGULAR).contains(&key)));
    assert!(refused >= 9_000, "{refused} of {}", crowd.looks.len());
    assert!(regular >= 1_000, "{regular} of {}", crowd.looks.len());
    // However little there is to do otherwise, they do not take all requests there are.
    let mut crowd = Crowd::new();
    crowd.run(SECOND * 3600);
    crowd.looks.clear();
    crowd.run(SECOND * 600);
    assert!(crowd.looks.len() <= 4_000 / 2, "{}", crowd.looks.len());
}

#[tokio::test(start_paused = true)]
async fn one_that_is_asked_for_by_itself_does_not_wait_for_a_rollout_and_the_rollout_goes_on() {
    let mut crowd = Crowd::new();
    crowd.run(SECOND * 3600);
    let many = 5_000;
    (ROLLOUT..ROLLOUT + many).for_each(|key| crowd.queue.add(key, Lane::Rollout, crowd.now));
    crowd.looks.clear();
    let began = crowd.now;
    for key in POLLED..POLLED + 60 {
        crowd.run(SECOND * 10);
        crowd.queue.add(key, Lane::Wanted, crowd.now);
        let waited = crowd.wait_for(key);
        // Polls of the rollout stand before it, as many as fell due in a look.
        assert!(waited <= SECOND, "{key}: {waited:?}");
    }
    // Half of all looks are at new ones of it, the others are its polls and those who failed.
    let looked = crowd.looks.iter().filter(|key| **key >= ROLLOUT).collect::<std::collections::BTreeSet<_>>().len();
    let all = (crowd.now - began).as_millis() / LOOK.as_millis();
    assert!(looked as u128 >= all / 3, "{looked} new ones in {all} looks");
    crowd.looks.clear();
    crowd.run(SECOND * 600);
    let refused = crowd.looks.iter().filter(|key| **key < REFUSED).count();
    assert!(refused >= 200, "those who failed have their part: {refused}");
}

#[tokio::test(start_paused = true)]
async fn what_was_tried_before_has_its_turn_and_news_do_not_wait_for_it() {
    let (mut queue, now) = (Queue::new(Retries { apart: SECOND * 10, ..RETRIES }), Instant::now());
    ["a", "b", "c"].iter().for_each(|key| queue.add(*key, Lane::Again, now));
    assert_eq!((queue.take(now), queue.take(now)), (Some("a"), None));
    assert_eq!((queue.next_due(), queue.depth(now).due), (Some(now + SECOND * 10), 2));
    queue.add("c", Lane::Wanted, now);
    assert_eq!(queue.take(now), Some("c"));
    queue.done(&"c", Next::Stuck(SECOND * 300), now, 1.0);
    queue.done(&"a", Next::Failed, now, 1.0);
    assert_eq!(queue.depth(now), Depth { due: 1, later: 2, failing: 1, ..Depth::default() });
    let taken = [10, 20, 30, 300].map(|seconds| queue.take(now + SECOND * seconds));
    assert_eq!(taken, [Some("b"), Some("a"), None, Some("c")]);
    queue.done(&"c", Next::BackOff(Pause { left: SECOND * 100, number: 9 }), now + SECOND * 300, 0.0);
    assert_eq!([399, 400].map(|second| queue.take(now + SECOND * second)), [None, Some("c")], "all of its pause");
}

#[tokio::test(start_paused = true)]
async fn what_failed_a_moment_ago_is_tried_at_its_own_pace_and_after_a_minute_in_turn() {
    let (mut queue, mut now) = (Queue::new(Retries { apart: SECOND * 1000, ..RETRIES }), Instant::now());
    queue.add("a", Lane::Wanted, now);
    queue.add("other", Lane::Again, now);
    assert_eq!(queue.take(now), Some("a"));
    queue.done(&"a", Next::Failed, now, 1.0);
    assert_eq!(queue.take(now), Some("other"));
    queue.done(&"other", Next::Gone, now, 1.0);
    let begun = now;
    let mut tried = Vec::new();
    for _ in 0..8 {
        now = queue.next_due().unwrap();
        tried.push((now - begun).as_secs());
        assert_eq!(queue.take(now), Some("a"));
        queue.done(&"a", Next::Failed, now, 1.0);
    }
    assert_eq!(tried, [1, 3, 7, 15, 31, 63, 1000, 2000]);
    // Something is new of it.
    queue.add("a", Lane::Wanted, now);
    assert_eq!(queue.take(now), Some("a"));
    queue.done(&"a", Next::Failed, now, 1.0);
    assert_eq!(queue.next_due(), Some(now + SECOND));
}

#[derive(Debug, Default)]
struct Counting {
    now: AtomicUsize,
    most: AtomicUsize,
    all: AtomicUsize,
}

impl Worker<u32> for Counting {
    fn retries(&self) -> Retries {
        RETRIES
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
    fn retries(&self) -> Retries {
        Retries { pauses: Backoff { first: SECOND, cap: *self.longest.lock().unwrap() }, ..RETRIES }
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

#[tokio::test(start_paused = true)]
async fn what_was_put_off_further_than_is_needed_now_comes_sooner_and_spread_as_it_was() {
    let (mut queue, now) = queue();
    let all =
        [("near", 150), ("a", 1000), ("c", 4000), ("b", 8000)].map(|(key, away)| (key, Next::Settled(SECOND * away)));
    for (key, next) in
        all.into_iter().chain([("poll", Next::Soon(SECOND * 1000)), ("stuck", Next::Stuck(SECOND * 1000))])
    {
        queue.add(key, Lane::Wanted, now);
        queue.take(now).unwrap();
        queue.done(&key, next, now, 1.0);
    }
    queue.quicken(Longest { regular: SECOND * 400, soon: SECOND * 30 }, now);
    // What is needed now is a little less: not worth it.
    queue.quicken(Longest { regular: SECOND * 200, soon: SECOND * 15 }, now);
    let mut dues = Vec::new();
    while let Some(due) = queue.next_due() {
        dues.push(((due - now).as_secs(), queue.take(due).unwrap()));
    }
    assert_eq!(dues, [(30, "poll"), (50, "a"), (150, "near"), (200, "c"), (400, "b"), (1000, "stuck")]);
}

/// Puts everything off for hours, and is told how much of that is needed.
struct Patient {
    needed: Mutex<Duration>,
    at: Mutex<Vec<Instant>>,
}

impl Worker<u32> for Patient {
    fn retries(&self) -> Retries {
        RETRIES
    }

    fn longest(&self) -> Longest {
        Longest { regular: *self.needed.lock().unwrap(), soon: SECOND }
    }

    async fn work(&self, _: u32) -> Next {
        self.at.lock().unwrap().push(Instant::now());
        Next::Settled(SECOND * 8000)
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_pause_ends_early_when_a_short_one_will_do_though_nothing_else_happens() {
    let work = Work::default();
    work.now(1);
    let worker = Arc::new(Patient { needed: Mutex::new(SECOND * 8000), at: Mutex::default() });
    let running = tokio::spawn(run(work, worker.clone(), 1, || 1.0));
    tokio::time::sleep(SECOND * 600).await;
    assert_eq!(worker.at.lock().unwrap().len(), 1);
    *worker.needed.lock().unwrap() = SECOND * 300;
    tokio::time::sleep(SECOND * 331).await;
    running.abort();
    assert_eq!(worker.at.lock().unwrap().len(), 2);
}
