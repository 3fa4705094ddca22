//! When which agent is queried, and what is remembered of its answers.

use std::sync::Arc;
use std::time::Duration;

use channel::{Fingerprint, Peer};
use health::Summary;
use health::fleet::NodeState;
use health::summary::poll::NodeReport;
use tokio::time::Instant;

use crate::fleet::agents::NoPeer;
use crate::fleet::judge::AgentFacts;
use crate::fleet::poll::{Answer, PollLimits};
use crate::fleet::roster::{Roster, TrackedNode};
use crate::fleet::schedule::Lane;
use crate::report::metrics::FleetCensus;

const SECOND: Duration = Duration::from_secs(1);

fn peer(key: &[u8]) -> Peer {
    Peer { address: "10.0.0.1:9809".parse().unwrap(), key: Fingerprint::of(key) }
}

fn summary() -> Summary {
    Summary { ready: true, ..Summary::default() }
}

fn changed() -> Result<Answer, String> {
    Ok(Answer::Changed(Box::new(summary()), Some("\"1\"".to_owned())))
}

/// A roster with these nodes, and when it began.
fn roster(nodes: usize) -> (Roster, Instant, Vec<Arc<str>>) {
    let now = Instant::now();
    let mut roster = Roster::new(PollLimits::DEFAULT, now);
    let names: Vec<Arc<str>> = (0..nodes).map(|number| Arc::from(format!("n{number}"))).collect();
    names.iter().for_each(|name| roster.set_peer(name, Ok(peer(b"a")), now));
    (roster, now, names)
}

#[test]
fn agents_are_polled_soon_and_then_spread_over_the_interval() {
    for (nodes, interval) in [(2, 30), (1200, 30), (2400, 60), (10_000, 240)] {
        let (mut roster, began, names) = roster(nodes);
        let mut polls = vec![0_usize; 3 * interval];
        for (second, polls) in polls.iter_mut().enumerate() {
            let now = began + SECOND * u32::try_from(second).unwrap();
            while let Some(poll) = roster.take(Lane::Regular, now) {
                assert_eq!(poll.etag.is_some(), roster.node(&poll.node, now).summary.is_some());
                roster.answered(&poll.node, changed(), now, 0.5);
                *polls += 1;
            }
        }
        assert!(polls[..=30].iter().sum::<usize>() >= names.len(), "the first time");
        assert_eq!(polls[2 * interval..].iter().sum::<usize>(), names.len(), "once in an interval");
        let max_polls = polls[interval.max(31)..].iter().max().unwrap();
        assert!(*max_polls <= 2 + 2 * nodes / interval, "{nodes}: {max_polls} in one second");
        assert_eq!(roster.bound(), Duration::from_mins(5), "whatever the interval");
    }
}

#[test]
fn setting_bounds_the_interval_and_silence_covers_it() {
    let longest_wait = |limits: PollLimits, nodes: usize| {
        let now = Instant::now();
        let mut roster = Roster::new(limits, now);
        let names: Vec<Arc<str>> = (0..nodes).map(|number| Arc::from(format!("n{number}"))).collect();
        names.iter().for_each(|name| roster.set_peer(name, Ok(peer(b"a")), now));
        let late = now + SECOND * 30;
        while let Some(poll) = roster.take(Lane::Regular, late) {
            roster.answered(&poll.node, changed(), late, 0.5);
        }
        let mut due = Vec::new();
        while let Some(next) = roster.next_due(Lane::Regular) {
            due.push(next - late);
            roster.take(Lane::Regular, next).unwrap();
        }
        due.last().unwrap().as_secs_f64().ceil()
    };
    let of = |interval: u64, silence: u64| PollLimits {
        interval: Duration::from_secs(interval),
        silence: Duration::from_secs(silence),
    };
    assert_eq!(longest_wait(of(10, 300), 3000), 10.0);
    assert_eq!(longest_wait(of(3600, 300), 12_000), 240.0);
    assert_eq!(longest_wait(of(240, 60), 3000), 48.0);
}

#[test]
fn roster_keeps_a_problem_across_a_restart_until_another_boot() {
    let (mut roster, now, names) = roster(1);
    let mut state = |started: u64, boot: &str, checks: serde_json::Value, not_measured: &[&str]| {
        let summary = serde_json::json!({ "version": 1, "ready": true, "bootId": boot, "startedUnixMillis": started, "checks": checks,
            "notMeasured": not_measured });
        let answer = Answer::Changed(serde_json::from_value(summary).unwrap(), None);
        roster.answered(&names[0], Ok(answer), now, 0.5);
        roster.node(&names[0], now).state
    };
    let none = serde_json::json!([]);
    let full = serde_json::json!([{ "name": "disk_use", "area": "host", "verdict": "problem", "severity": "critical",
        "message": "Full.", "sinceUnixMillis": 1 }]);
    for boot in ["a", "b"] {
        assert_eq!(state(1, boot, full.clone(), &[]), NodeState::Critical);
        assert_eq!(state(2, boot, none.clone(), &["disk_use"]), NodeState::Critical, "the agent was restarted");
        assert_eq!(state(3, boot, none.clone(), &["disk_use"]), NodeState::Critical, "and again");
    }
    assert_eq!(state(3, "c", none.clone(), &["disk_use"]), NodeState::Healthy, "the node was rebooted");
    assert_eq!(state(4, "c", full, &[]), NodeState::Critical);
    assert_eq!(state(5, "c", none, &[]), NodeState::Healthy, "measured again");
}

#[test]
fn failing_agent_is_retried_with_backoff_without_delaying_other_agents() {
    let (mut roster, began, names) = roster(1);
    let [name] = &names[..] else { panic!("one") };
    let mut now = began + SECOND * 30;
    roster.take(Lane::Regular, now).unwrap();
    let mut waits = Vec::new();
    for _ in 0..8 {
        roster.answered(name, Err("connection refused".to_owned()), now, 1.0);
        assert_eq!((roster.next_due(Lane::Regular), roster.take(Lane::Retry, now)), (None, None));
        let due = roster.next_due(Lane::Retry).unwrap();
        waits.push((due - now).as_secs());
        now = due;
        roster.take(Lane::Retry, now).unwrap();
    }
    assert_eq!(waits, [5, 10, 20, 30, 30, 30, 30, 30]);
    assert_eq!(roster.node(name, now).error.as_deref(), Some("connection refused"));
    roster.answered(name, changed(), now, 1.0);
    assert_eq!((roster.next_due(Lane::Retry), roster.node(name, now).error), (None, None));
    assert!(!roster.is_in_sample(name, now + SECOND * 100), "retries are not sampled");
    let due = roster.next_due(Lane::Regular).unwrap();
    assert!(due > now && due <= now + SECOND * 30);
}

#[test]
fn silent_agent_becomes_unknown_after_five_minutes_and_keeps_summary() {
    let (mut roster, began, names) = roster(1);
    let [name] = &names[..] else { panic!("one") };
    assert_eq!(roster.bound(), Duration::from_mins(5));
    assert_eq!(roster.facts(name, began), AgentFacts::Pending { is_failing: false });
    let silent = AgentFacts::Silent { has_agent: true };
    assert_eq!(roster.facts(name, began + SECOND * 301), silent, "it never answered");
    roster.take(Lane::Regular, began + SECOND * 30).unwrap();
    roster.answered(name, changed(), began, 0.5);
    let summary = summary();
    assert_eq!(roster.facts(name, began), AgentFacts::Answered { summary: &summary, is_failing: false });
    roster.set_peer(name, Err(NoPeer::NoPod), began + SECOND);
    let later = began + SECOND * 300;
    assert_eq!(roster.facts(name, later), AgentFacts::Answered { summary: &summary, is_failing: true });
    let later = later + SECOND;
    assert_eq!(roster.facts(name, later), AgentFacts::Silent { has_agent: false });
    let shown = roster.node(name, later);
    assert_eq!((shown.state, shown.age_seconds, shown.summary), (NodeState::Unknown, Some(301), Some(summary)));
    assert_eq!(shown.error.as_deref(), Some("no agent runs on the node"));
    assert_eq!(FleetCensus::of(&roster, later).nodes.get(&NodeState::Unknown), Some(&1));
}

#[test]
fn unchanged_answer_keeps_the_summary_and_renews_its_age() {
    let (mut roster, began, names) = roster(1);
    let [name] = &names[..] else { panic!("one") };
    roster.answered(name, changed(), began, 0.5);
    let later = began + SECOND * 240;
    roster.answered(name, Ok(Answer::Unchanged), later, 0.5);
    let shown = roster.node(name, later);
    assert_eq!((shown.state, shown.age_seconds), (NodeState::Healthy, Some(0)));
    let census = FleetCensus::of(&roster, later + SECOND);
    assert_eq!((census.oldest, census.nodes.get(&NodeState::Healthy)), (SECOND, Some(&1)));
}

#[test]
fn replaced_agent_is_polled_soon() {
    let (mut roster, began, names) = roster(1);
    let [name] = &names[..] else { panic!("one") };
    let poll = roster.take(Lane::Regular, began + SECOND * 30).unwrap();
    // It is replaced while the request is in flight, which schedules the next one.
    roster.set_peer(name, Ok(peer(b"b")), began);
    assert_eq!(roster.next_due(Lane::Regular), None);
    roster.answered(name, Err("a wrong key".to_owned()), began, 0.0);
    assert_ne!(roster.take(Lane::Retry, began + SECOND * 5).unwrap().peer, poll.peer);
    roster.answered(name, changed(), began, 0.0);
    roster.set_peer(name, Ok(peer(b"c")), began);
    assert!(roster.next_due(Lane::Regular).unwrap() <= began + SECOND * 30);
}

#[test]
fn deleted_node_is_forgotten() {
    let (mut roster, began, names) = roster(2);
    roster.set_peer(&names[0], Err(NoPeer::NoPod), began);
    let report = NodeReport { allocatable_memory: Some(4096), ..NodeReport::default() };
    let tracked = |name, report: &NodeReport| TrackedNode { name, report: report.clone(), ..TrackedNode::default() };
    roster.track([tracked("n1", &report), tracked("virtual", &NodeReport::default())].into_iter(), began);
    let poll = roster.take(Lane::Regular, began + SECOND * 30).unwrap();
    assert_eq!((&*poll.node, poll.report), ("n1", report));
    assert_eq!(roster.count(), 2);
    assert_eq!(roster.node("virtual", began).error.as_deref(), Some("no agent runs on the node"));
    roster.track(std::iter::empty(), began);
    assert_eq!(roster.count(), 1, "its agent still answers");
}
