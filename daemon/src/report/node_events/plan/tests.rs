//! Days of a node, in seconds: the conditions, and the Events about them.

use super::*;

const HOLD_FOR: Duration = Duration::from_secs(30);

struct Day {
    plan: Plan,
    start: Instant,
    /// When and what: `+` raised, `!` raised and blocking, `-` cleared; and how many others.
    events: Vec<(u64, String)>,
    dropped: usize,
}

impl Day {
    fn after(reported: BTreeMap<ConditionKey, ReportedEvent>) -> Self {
        let start = Instant::now();
        Self { plan: Plan::new(reported, start), start, events: Vec::new(), dropped: 0 }
    }

    fn new() -> Self {
        Self::after(BTreeMap::new())
    }

    fn at(&self, second: u64) -> Instant {
        self.start + Duration::from_secs(second)
    }

    /// Between two times, in seconds, these are the conditions.
    fn is(&mut self, between: std::ops::Range<u64>, conditions: &[Condition]) {
        for second in between {
            self.is_offline(second..second + 1, conditions);
            while let Some(transition) = self.plan.due(HOLD_FOR, self.at(second)) {
                self.events.push((second, shown(&transition)));
                self.plan.written(transition, second * 1000, self.at(second));
            }
        }
    }

    /// The same while no Event can be written.
    fn is_offline(&mut self, between: std::ops::Range<u64>, conditions: &[Condition]) {
        for second in between {
            self.dropped += self.plan.note(conditions, HOLD_FOR, self.at(second));
        }
    }

    fn events(&self) -> Vec<(u64, &str)> {
        self.events.iter().map(|(second, event)| (*second, event.as_str())).collect()
    }
}

fn shown(transition: &Transition) -> String {
    let named = |reason: Reason, subject: &Option<String>| {
        format!("{reason}{}", subject.as_ref().map(|subject| format!(" {subject}")).unwrap_or_default())
    };
    match transition {
        Transition::Raised { condition, others } => {
            let sign = if condition.blocks() { "!" } else { "+" };
            let others = if *others > 0 { format!(" and {others}") } else { String::new() };
            format!("{sign}{}{others}", named(condition.reason, &condition.subject))
        }
        Transition::Cleared { key, pods_start, .. } => {
            format!("-{}{}", named(key.reason, &key.subject), if *pods_start { ", ready" } else { "" })
        }
    }
}

fn missing(vnic: &str) -> Condition {
    Condition::degraded(Reason::LinkMissing, "no link").about(vnic)
}

fn pending() -> Condition {
    Condition::blocking(Reason::NativePodNetworkPending, "not yet")
}

#[test]
fn transitions_of_a_start_have_no_event() {
    let mut day = Day::new();
    day.is(0..600, &[Condition::blocking(Reason::Starting, "the first reconcile has not finished")]);
    day.is(600..629, &[pending()]);
    day.is(629..1000, &[]);
    assert_eq!((day.events(), day.dropped), (vec![], 0));
}

#[test]
fn restarted_agent_reports_only_what_changed() {
    let mut day = Day::new();
    day.is(0..100, &[pending(), missing("a")]);
    assert_eq!(day.events(), [(30, "!NativePodNetworkPending"), (30, "+LinkMissing a")]);
    let mut next = Day::after(day.plan.reported().clone());
    next.is(0..100, &[pending(), missing("a")]);
    assert_eq!(next.events(), []);
    let mut later = Day::after(next.plan.reported().clone());
    later.is(0..100, &[missing("a")]);
    assert_eq!(later.events(), [(30, "-NativePodNetworkPending, ready")]);
}

#[test]
fn severity_is_reported_and_another_message_is_not() {
    let mut day = Day::new();
    let degraded = |words: &str| Condition::degraded(Reason::MetadataUnavailable, words);
    day.is(0..100, &[degraded("1 time")]);
    day.is(100..200, &[degraded("2 times")]);
    day.is(200..300, &[Condition::blocking(Reason::MetadataUnavailable, "3 times")]);
    day.is(300..400, &[]);
    let expected = [(30, "+MetadataUnavailable"), (230, "!MetadataUnavailable"), (330, "-MetadataUnavailable, ready")];
    assert_eq!(day.events(), expected);
}

#[test]
fn pods_start_when_last_blocking_condition_is_cleared() {
    let mut day = Day::new();
    let none = Condition::blocking(Reason::NoUsableAddress, "none");
    day.is(0..100, &[none.clone(), pending()]);
    day.is(100..200, std::slice::from_ref(&none));
    day.is(200..300, &[missing("a")]);
    let over: Vec<_> = day.events().into_iter().filter(|(_, event)| event.starts_with('-')).collect();
    assert_eq!(over, [(130, "-NativePodNetworkPending"), (230, "-NoUsableAddress, ready")]);
}

#[test]
fn flapping_condition_causes_few_events_and_last_is_true() {
    for (period, at_most) in [(40, 0), (80, 14), (600, 14)] {
        let mut day = Day::new();
        for begin in (0..3600).step_by(period) {
            let (begin, half) = (begin as u64, period as u64 / 2);
            day.is(begin..begin + half, &[missing("a")]);
            day.is(begin + half..begin + period as u64, &[]);
        }
        day.is(3600..4300, &[missing("a")]);
        assert!(day.events.len() <= at_most + 1, "every {period} s: {:?}", day.events());
        assert!(day.events.last().unwrap().1 == "+LinkMissing a", "the last Event is true: {:?}", day.events());
    }
}

#[test]
fn many_with_one_reason_share_events_and_delay_no_other() {
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
    assert_eq!(day.events(), expected);
    day.is(7200..7300, &[]);
    assert_eq!((day.events.len(), day.dropped), (12, 246));
}

#[test]
fn node_writes_at_most_forty_events_an_hour() {
    let mut day = Day::new();
    for minute in 0..180_u64 {
        let pods: Vec<Condition> = (0..30)
            .map(|number| Condition::degraded(Reason::AttachmentLeftOver, "x").about(format!("pod-{minute}-{number}")))
            .collect();
        day.is(minute * 60..minute * 60 + 60, &pods);
    }
    for hour in 0..3 {
        let of_hour = day.events.iter().filter(|(second, _)| second / 3600 == hour).count();
        assert!((15..=40).contains(&of_hour), "{of_hour} in hour {hour}");
    }
    assert!(day.dropped > 1000 && day.plan.reported().len() <= 40, "{}", day.dropped);
    assert!(day.plan.differing.len() <= 70, "{}", day.plan.differing.len());
}

#[test]
fn outage_queues_nothing_and_only_current_state_follows() {
    let mut day = Day::new();
    day.is(0..100, &[missing("a")]);
    for hour in 0..10_u64 {
        let begin = 100 + hour * 100;
        day.is_offline(begin..begin + 50, &[pending(), missing("b")]);
        day.is_offline(begin + 50..begin + 100, &[missing("a")]);
    }
    assert!(day.plan.differing.is_empty(), "{:?}", day.plan.differing);
    day.is_offline(1100..1200, &[missing("c")]);
    day.is(1200..1300, &[missing("c")]);
    assert_eq!(day.events(), [(30, "+LinkMissing a"), (1200, "-LinkMissing a"), (1200, "+LinkMissing c")]);
    assert_eq!(day.dropped, 30, "two that came and one that went, ten times");
}

#[test]
fn change_during_a_write_is_reported_next() {
    let mut day = Day::new();
    day.is_offline(0..40, &[missing("a")]);
    let transition = day.plan.due(HOLD_FOR, day.at(40)).unwrap();
    day.is_offline(40..45, &[]);
    day.plan.written(transition, 0, day.at(45));
    day.is(45..200, &[]);
    assert_eq!(day.events(), [(75, "-LinkMissing a")]);
}

#[test]
fn next_check_is_set_only_while_a_transition_is_open() {
    let mut day = Day::new();
    let next = |day: &Day, at: u64| {
        let now = day.at(at);
        day.plan.next(HOLD_FOR, now).map(|next| next.duration_since(now).as_secs())
    };
    assert_eq!(next(&day, 0), None);
    day.is(10..11, &[missing("a")]);
    assert_eq!(next(&day, 15), Some(25));
    assert_eq!(next(&day, 50), Some(CHECK_INTERVAL.as_secs()), "the Event is not allowed yet");
    day.is(40..41, &[missing("a")]);
    assert_eq!(next(&day, 41), None);
}
