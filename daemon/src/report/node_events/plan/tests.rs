//! Days of a node, in seconds: what is, and what is told.

use super::*;

const HOLD_FOR: Duration = Duration::from_secs(30);

struct Day {
    plan: Plan,
    start: Instant,
    /// When, with which sign: `+` raised, `!` raised and blocking, `-` over; and how many others.
    told: Vec<(u64, String)>,
    dropped: usize,
}

impl Day {
    fn after(standing: BTreeMap<Name, Standing>) -> Self {
        Self { plan: Plan::new(standing), start: Instant::now(), told: Vec::new(), dropped: 0 }
    }

    fn new() -> Self {
        Self::after(BTreeMap::new())
    }

    /// Between two times, in seconds, these are the conditions.
    fn is(&mut self, between: std::ops::Range<u64>, conditions: &[Condition]) {
        for second in between {
            let now = self.start + Duration::from_secs(second);
            self.dropped += self.plan.note(conditions, HOLD_FOR, now);
            while let Some(telling) = self.plan.due(HOLD_FOR, now) {
                self.told.push((second, said(&telling)));
                self.plan.told(telling, second * 1000, now);
            }
        }
    }

    /// The same, and nobody can be told.
    fn is_unheard(&mut self, between: std::ops::Range<u64>, conditions: &[Condition]) {
        for second in between {
            self.dropped += self.plan.note(conditions, HOLD_FOR, self.start + Duration::from_secs(second));
        }
    }

    fn told(&self) -> Vec<(u64, &str)> {
        self.told.iter().map(|(second, said)| (*second, said.as_str())).collect()
    }
}

fn said(telling: &Telling) -> String {
    let Name { reason, subject } = &telling.name;
    let subject = subject.as_ref().map(|subject| format!(" {subject}")).unwrap_or_default();
    match &telling.what {
        What::Raised { condition, others: 0 } if condition.blocks() => format!("!{reason}{subject}"),
        What::Raised { others: 0, .. } => format!("+{reason}{subject}"),
        What::Raised { others, .. } => format!("+{reason}{subject} and {others}"),
        What::Over { ready: true, .. } => format!("-{reason}{subject}, ready"),
        What::Over { .. } => format!("-{reason}{subject}"),
    }
}

fn missing(vnic: &str) -> Condition {
    Condition::degraded(Reason::LinkMissing, "no link").about(vnic)
}

fn pending() -> Condition {
    Condition::blocking(Reason::NativePodNetworkPending, "not yet")
}

#[test]
fn what_stands_is_told_once_and_that_it_is_over_once() {
    let mut day = Day::new();
    day.is(0..100, &[]);
    day.is(100..4000, &[missing("a")]);
    day.is(4000..9000, &[]);
    assert_eq!(day.told(), [(130, "+LinkMissing a"), (4030, "-LinkMissing a")]);
    assert!(day.plan.standing().is_empty() && day.dropped == 0);
}

#[test]
fn what_a_start_brings_along_is_not_told() {
    let mut day = Day::new();
    day.is(0..600, &[Condition::blocking(Reason::Starting, "no pass has ended yet")]);
    day.is(600..629, &[pending()]);
    day.is(629..1000, &[]);
    assert_eq!((day.told(), day.dropped), (vec![], 0));
}

#[test]
fn an_agent_after_another_one_tells_what_changed_and_nothing_else() {
    let mut day = Day::new();
    day.is(0..100, &[pending(), missing("a")]);
    assert_eq!(day.told(), [(30, "!NativePodNetworkPending"), (30, "+LinkMissing a")]);
    let mut next = Day::after(day.plan.standing().clone());
    next.is(0..100, &[pending(), missing("a")]);
    assert_eq!(next.told(), []);
    let mut later = Day::after(next.plan.standing().clone());
    later.is(0..100, &[missing("a")]);
    assert_eq!(later.told(), [(30, "-NativePodNetworkPending, ready")]);
}

#[test]
fn other_words_are_no_news_and_another_severity_is_without_an_end_of_the_first() {
    let mut day = Day::new();
    let degraded = |words: &str| Condition::degraded(Reason::MetadataUnavailable, words);
    day.is(0..100, &[degraded("1 time")]);
    day.is(100..200, &[degraded("2 times")]);
    day.is(200..300, &[Condition::blocking(Reason::MetadataUnavailable, "3 times")]);
    day.is(300..400, &[]);
    let expected = [(30, "+MetadataUnavailable"), (230, "!MetadataUnavailable"), (330, "-MetadataUnavailable, ready")];
    assert_eq!(day.told(), expected);
}

#[test]
fn pods_can_start_again_only_when_nothing_else_stops_them() {
    let mut day = Day::new();
    let none = Condition::blocking(Reason::NoUsableAddress, "none");
    day.is(0..100, &[none.clone(), pending()]);
    day.is(100..200, std::slice::from_ref(&none));
    day.is(200..300, &[missing("a")]);
    let over: Vec<_> = day.told().into_iter().filter(|(_, said)| said.starts_with('-')).collect();
    assert_eq!(over, [(130, "-NativePodNetworkPending"), (230, "-NoUsableAddress, ready")]);
}

#[test]
fn what_comes_and_goes_within_seconds_is_not_told_and_what_takes_longer_a_few_times_an_hour() {
    for (period, at_most) in [(40, 0), (80, 14), (600, 14)] {
        let mut day = Day::new();
        for begin in (0..3600).step_by(period) {
            let (begin, half) = (begin as u64, period as u64 / 2);
            day.is(begin..begin + half, &[missing("a")]);
            day.is(begin + half..begin + period as u64, &[]);
        }
        day.is(3600..4300, &[missing("a")]);
        assert!(day.told.len() <= at_most + 1, "every {period} s: {:?}", day.told());
        assert!(day.told.last().unwrap().1 == "+LinkMissing a", "the last word is true: {:?}", day.told());
    }
}

#[test]
fn of_many_with_one_reason_some_are_told_with_the_number_of_the_others_and_another_reason_is_not_kept_waiting() {
    let mut day = Day::new();
    let broken = |number| Condition::degraded(Reason::PodNetworkBroken, "no route").about(format!("pod-{number:03}"));
    let mut all: Vec<Condition> = (0..250).map(broken).collect();
    all.push(missing("a"));
    all.push(pending());
    day.is(0..7200, &all);
    let expected = [
        (30, "!NativePodNetworkPending"),
        (30, "+LinkMissing a"),
        (30, "+PodNetworkBroken pod-000 and 249"),
        (30, "+PodNetworkBroken pod-001 and 248"),
        (30, "+PodNetworkBroken pod-002 and 247"),
        (30, "+PodNetworkBroken pod-003 and 246"),
    ];
    let told = day.told();
    assert_eq!(told, expected);
    day.is(7200..7300, &[]);
    assert_eq!((day.told.len(), day.dropped), (12, 246));
}

#[test]
fn whatever_happens_a_node_tells_forty_events_in_an_hour_at_most() {
    let mut day = Day::new();
    for minute in 0..180_u64 {
        let pods: Vec<Condition> = (0..30)
            .map(|number| Condition::degraded(Reason::AttachmentLeftOver, "x").about(format!("pod-{minute}-{number}")))
            .collect();
        day.is(minute * 60..minute * 60 + 60, &pods);
    }
    for hour in 0..3 {
        let of_hour = day.told.iter().filter(|(second, _)| second / 3600 == hour).count();
        assert!((15..=40).contains(&of_hour), "{of_hour} in hour {hour}");
    }
    assert!(day.dropped > 1000 && day.plan.standing().len() <= 40, "{}", day.dropped);
    assert!(day.plan.differing.len() <= 70, "{}", day.plan.differing.len());
}

#[test]
fn while_nobody_can_be_told_nothing_gathers_and_afterwards_only_what_is_is_told() {
    let mut day = Day::new();
    day.is(0..100, &[missing("a")]);
    for hour in 0..10_u64 {
        let begin = 100 + hour * 100;
        day.is_unheard(begin..begin + 50, &[pending(), missing("b")]);
        day.is_unheard(begin + 50..begin + 100, &[missing("a")]);
    }
    assert!(day.plan.differing.is_empty(), "{:?}", day.plan.differing);
    day.is_unheard(1100..1200, &[missing("c")]);
    day.is(1200..1300, &[missing("c")]);
    assert_eq!(day.told(), [(30, "+LinkMissing a"), (1200, "-LinkMissing a"), (1200, "+LinkMissing c")]);
    assert_eq!(day.dropped, 30, "two that came and one that went, ten times");
}

#[test]
fn what_changes_while_it_is_told_is_told_next() {
    let (mut day, second) = (Day::new(), Duration::from_secs);
    day.is_unheard(0..40, &[missing("a")]);
    let telling = day.plan.due(HOLD_FOR, day.start + second(40)).unwrap();
    day.is_unheard(40..45, &[]);
    day.plan.told(telling, 0, day.start + second(45));
    day.is(45..200, &[]);
    assert_eq!(day.told(), [(75, "-LinkMissing a")]);
}

#[test]
fn it_looks_again_when_something_has_stood_long_enough_and_never_while_all_is_told() {
    let (mut day, second) = (Day::new(), Duration::from_secs);
    let next = |day: &Day, at: u64| {
        let now = day.start + second(at);
        day.plan.next(HOLD_FOR, now).map(|next| next.duration_since(now).as_secs())
    };
    assert_eq!(next(&day, 0), None);
    day.is(10..11, &[missing("a")]);
    assert_eq!(next(&day, 15), Some(25));
    assert_eq!(next(&day, 50), Some(LOOK_AGAIN.as_secs()), "it was not to be told yet");
    day.is(40..41, &[missing("a")]);
    assert_eq!(next(&day, 41), None);
}
