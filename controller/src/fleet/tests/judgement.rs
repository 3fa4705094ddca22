//! Which conditions are written, and which are not.

use std::ops::Range;
use std::time::Duration;

use api::ConditionStatus::{False, True, Unknown};
use health::hardware::device::FaultyDevice;
use health::report::NotMeasured;
use health::rules::Severity;
use health::summary::{AcceleratorSources, Check};
use health::{Area, Report, Summary};
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use tokio::time::Instant;

use crate::cluster::node_condition::{NodeCondition, StoredCondition};
use crate::fleet::condition::patch;
use crate::fleet::findings::problem;
use crate::fleet::judge::{AgentFacts, ConditionWrite, Judgement, NodeFacts, UnknownHold, judge};

fn time(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn check(name: &str, area: Area, severity: Severity, since: u64) -> Check {
    let message = format!("{name} is bad.");
    Check { area, message, since_unix_millis: since, ..problem(name, severity) }
}

fn summary(checks: Vec<Check>) -> Summary {
    Summary { checks, ..Summary::default() }
}

/// Judges one node; what it has then.
fn judged(has: &[NodeCondition], agent: AgentFacts<'_>, second: i64) -> (Judgement, Vec<NodeCondition>) {
    let node = NodeFacts { name: "a", version: None, conditions: has, agent, is_in_sample: true };
    let judgement = judge(std::iter::once(node), time(second));
    let mut after = has.to_vec();
    for new in judgement.writes.iter().flat_map(|write| &write.conditions) {
        after.retain(|condition| condition.area != new.condition.area);
        after.push(new.condition.clone());
    }
    after.sort_by_key(|condition| condition.area);
    (judgement, after)
}

fn answered(summary: &Summary) -> AgentFacts<'_> {
    AgentFacts::Answered { summary, is_failing: false }
}

fn states(conditions: &[NodeCondition]) -> Vec<(&str, &str, i64)> {
    let state = |condition: &NodeCondition| condition.since.unwrap().as_second();
    conditions.iter().map(|one| (one.status.as_str(), one.reason.as_str(), state(one))).collect()
}

#[test]
fn node_conditions_follow_critical_problems_and_change_on_transition_only() {
    let fine = summary(vec![check("mtu", Area::Network, Severity::Warning, 1)]);
    let (_, has) = judged(&[], answered(&fine), 100);
    let good = ("True", "NoCriticalProblem");
    assert_eq!(states(&has), [(good.0, good.1, 100), (good.0, good.1, 100)]);
    assert_eq!(judged(&has, answered(&fine), 200).0, Judgement::default());

    let bad = summary(vec![
        check("links", Area::Network, Severity::Critical, 9),
        check("vnic_drift", Area::Network, Severity::Critical, 5),
        check("mtu", Area::Network, Severity::Warning, 1),
    ]);
    let (judgement, has) = judged(&has, answered(&bad), 300);
    assert_eq!(states(&has), [("False", "VnicDrift", 300), (good.0, good.1, 100)]);
    assert_eq!(judgement.writes[0].conditions[0].message, "vnic_drift is bad. links is bad.");
    assert_eq!(judged(&has, answered(&bad), 400).0, Judgement::default());

    // Another reason is written, and is not a transition.
    let other = summary(vec![check("links", Area::Network, Severity::Critical, 9)]);
    let (_, has) = judged(&has, answered(&other), 500);
    assert_eq!(states(&has), [("False", "Links", 300), (good.0, good.1, 100)]);

    let (_, has) = judged(&has, AgentFacts::Silent { has_agent: true }, 600);
    assert_eq!(states(&has), [("Unknown", "AgentSilent", 600), ("Unknown", "AgentSilent", 600)]);
    let (_, has) = judged(&has, answered(&fine), 700);
    assert_eq!(states(&has), [(good.0, good.1, 700), (good.0, good.1, 700)]);
}

#[test]
fn problem_that_is_not_measured_any_more_keeps_its_condition() {
    let bad = |gap: Option<u64>| {
        let not_measured =
            gap.map(|since_unix_millis| NotMeasured { since_unix_millis, reason: "the disk hangs".to_owned() });
        summary(vec![Check { not_measured, ..check("disk_use", Area::Host, Severity::Critical, 5) }])
    };
    let (_, has) = judged(&[], answered(&bad(None)), 1);
    assert_eq!(judged(&has, answered(&bad(Some(60_000))), 2).0, Judgement::default(), "no transition");
    let (judgement, has) = judged(&[], answered(&bad(Some(60_000))), 3);
    assert_eq!(states(&has)[1], ("False", "DiskUse", 3));
    let message = &judgement.writes[0].conditions[1].message;
    assert_eq!(message, "disk_use is bad. Not measured since 1970-01-01T00:01:00Z: the disk hangs.");
}

#[test]
fn node_is_judged_only_after_an_answer_or_the_bound() {
    for is_failing in [false, true] {
        assert_eq!(judged(&[], AgentFacts::Pending { is_failing }, 1).0, Judgement::default());
    }
    // A node where no agent ever ran, such as a virtual node.
    assert_eq!(judged(&[], AgentFacts::Silent { has_agent: false }, 1).0, Judgement::default());
    let (_, has) = judged(&[], answered(&Summary::default()), 1);
    let (_, has) = judged(&has, AgentFacts::Silent { has_agent: false }, 2);
    assert!(has.iter().all(|condition| condition.status == Unknown));
}

#[test]
fn many_silent_nodes_at_once_write_nothing_unknown() {
    let fine = Summary::default();
    let (_, has) = judged(&[], answered(&fine), 1);
    let bad = summary(vec![check("disk", Area::Host, Severity::Critical, 1)]);
    let names: Vec<String> = (0..100).map(|number| format!("n{number}")).collect();
    // `first` passed the bound, and as many as `failing` did not answer their last request.
    let run = |first: usize, failing: usize, sample: Range<usize>| {
        let facts = names.iter().enumerate().map(|(number, name)| {
            let agent = match number {
                99 => answered(&bad),
                _ if number < first => AgentFacts::Silent { has_agent: true },
                _ => AgentFacts::Answered { summary: &fine, is_failing: number < failing },
            };
            NodeFacts { name, version: None, conditions: &has, agent, is_in_sample: sample.contains(&number) }
        });
        let judgement = judge(facts, time(2));
        let count = |status| {
            let of = |write: &&ConditionWrite| write.conditions.iter().any(|new| new.condition.status == status);
            judgement.writes.iter().filter(of).count()
        };
        (judgement.held, count(Unknown), count(False), judgement.writes.first().map(|write| write.node.clone()))
    };
    let worst = Some("n99".to_owned());
    assert_eq!(run(10, 10, 0..100), (None, 10, 1, worst.clone()), "the problem comes first");
    assert_eq!(run(11, 11, 0..0), (Some(11), 0, 1, worst.clone()));
    assert_eq!(run(1, 50, 0..100), (Some(50), 0, 1, worst.clone()), "before the first node is written");
    assert_eq!(run(0, 50, 0..100), (None, 0, 1, worst.clone()), "nothing is held back");
    assert_eq!(run(1, 9, 5..30), (Some(9), 0, 1, worst.clone()), "four of the 25 that were queried last fail");
    assert_eq!(run(1, 9, 7..30), (None, 1, 1, worst), "two");
}

#[test]
fn two_silent_nodes_are_written_in_a_small_cluster() {
    let silent = ["a", "b", "c"].map(|name| NodeFacts {
        name,
        version: None,
        conditions: &[],
        agent: AgentFacts::Silent { has_agent: true },
        is_in_sample: false,
    });
    assert_eq!(judge(silent[..2].iter().copied(), time(1)).writes.len(), 2);
    assert_eq!(judge(silent.iter().copied(), time(1)).held, Some(3));
}

#[test]
fn last_silent_nodes_of_a_healing_partition_are_not_written() {
    let (fine, bound, start) = (Summary::default(), Duration::from_secs(300), Instant::now());
    let (mut hold, (_, has)) = (UnknownHold::default(), judged(&[], answered(&fine), 1));
    let mut held_and_written = |silent: usize, second: u64| {
        let facts = (0..100).map(|number| NodeFacts {
            name: "n",
            version: None,
            conditions: &has,
            agent: if number < silent { AgentFacts::Silent { has_agent: true } } else { answered(&fine) },
            is_in_sample: false,
        });
        let mut judgement = judge(facts, time(2));
        hold.apply(&mut judgement, start + Duration::from_secs(second), bound);
        (judgement.held, judgement.writes.len())
    };
    assert_eq!(held_and_written(5, 0), (None, 5), "few nodes failed, and no other before");
    assert_eq!(held_and_written(50, 10), (Some(50), 0));
    assert_eq!(held_and_written(5, 300), (Some(5), 0), "most answer again");
    assert_eq!(held_and_written(0, 305), (None, 0));
    assert_eq!(held_and_written(5, 310), (None, 5), "each was queried again");
}

#[test]
fn host_of_an_agent_without_health_signals_is_unknown() {
    let off = Report { is_off: true, ..Report::default() };
    let quiet = Summary::default().with(&off);
    let (judgement, has) = judged(&[], answered(&quiet), 1);
    assert_eq!(states(&has), [("True", "NoCriticalProblem", 1), ("Unknown", "HealthOff", 1)]);
    assert_eq!(judgement.held, None);
    let bad = summary(vec![check("RouterUnknown", Area::Network, Severity::Critical, 1)]).with(&off);
    let (_, has) = judged(&has, answered(&bad), 2);
    assert_eq!(
        states(&has),
        [("False", "RouterUnknown", 2), ("Unknown", "HealthOff", 1)],
        "conditions of the agent count"
    );
}

#[test]
fn agents_text_is_bounded_and_printable() {
    let mut evil = check(&"ü/x".repeat(100), Area::Host, Severity::Critical, 1);
    evil.message = "\u{1b}[2J\n".repeat(100);
    let (judgement, has) = judged(&[], answered(&summary(vec![evil])), 1);
    assert_eq!((has[1].status, has[1].reason.len()), (False, 64));
    let messages: Vec<_> = judgement.writes[0].conditions.iter().map(|new| new.message.as_str()).collect();
    assert!(messages[1].chars().count() <= 401 && !messages[1].contains(char::is_control), "{messages:?}");
    let mut off = check(health::summary::HEALTH_OFF, Area::Host, Severity::Warning, 1);
    off.message = "\u{1b}[2J\u{200b}".repeat(1000);
    let (judgement, _) = judged(&[], answered(&summary(vec![off])), 1);
    let messages: Vec<_> = judgement.writes[0].conditions.iter().map(|new| new.message.as_str()).collect();
    assert!(messages[1].chars().count() <= 401 && !messages[1].contains(['\u{1b}', '\u{200b}']), "{messages:?}");
}

#[test]
fn patch_has_our_types_only_and_is_read_back() {
    let (judgement, has) = judged(&[], answered(&Summary::default()), 1000);
    let body = patch(Some("7"), &judgement.writes[0].conditions, time(2000));
    let condition = |kind: &str| {
        json!({ "type": kind, "status": "True", "reason": "NoCriticalProblem", "message": "No critical problem.",
            "lastTransitionTime": "1970-01-01T00:16:40Z", "lastHeartbeatTime": "1970-01-01T00:33:20Z" })
    };
    let types = ["oke.oraclecloud.com/NetworkReady", "oke.oraclecloud.com/HostHealthy"];
    let metadata = json!({ "resourceVersion": "7" });
    assert_eq!(body, json!({ "metadata": metadata, "status": { "conditions": types.map(condition) } }));
    let stored: Vec<StoredCondition> = serde_json::from_value(body["status"]["conditions"].clone()).unwrap();
    let read: Vec<_> = stored.into_iter().filter_map(NodeCondition::read).collect();
    assert_eq!((read, has[0].status), (has.clone(), True));
    let foreign: StoredCondition = serde_json::from_value(json!({ "type": "Ready", "status": "True" })).unwrap();
    assert_eq!(NodeCondition::read(foreign), None);
}

#[test]
fn nodes_without_accelerators_have_no_condition_about_them() {
    let fine = summary(Vec::new());
    let (_, has) = judged(&[], answered(&fine), 100);
    assert_eq!(has.iter().map(|one| one.area).collect::<Vec<_>>(), [Area::Network, Area::Host]);
    let silent = AgentFacts::Silent { has_agent: true };
    assert_eq!(judged(&has, silent, 200).1.len(), 2);
}

#[test]
fn accelerators_condition_follows_its_checks_and_survives_a_restarted_agent() {
    let with = |kernel_messages, checks| Summary {
        accelerators: Some(AcceleratorSources { kernel_messages, ..AcceleratorSources::default() }),
        ..summary(checks)
    };
    let (judgement, has) = judged(&[], answered(&with(false, Vec::new())), 100);
    let message = "No critical problem. Kernel messages are not read: set agent.kernelLog.";
    assert_eq!(judgement.writes[0].conditions[2].message, message);
    assert_eq!(states(&has)[2], ("True", "NoCriticalProblem", 100));

    let lost = check("gpus_need_reboot", Area::Accelerators, Severity::Critical, 5);
    let (judgement, has) = judged(&has, answered(&with(true, vec![lost])), 200);
    assert_eq!(judgement.writes[0].conditions.len(), 1, "HostHealthy stays");
    assert_eq!(states(&has)[2], ("False", "GpusNeedReboot", 200));

    let restarted = summary(Vec::new());
    assert_eq!(judged(&has, answered(&restarted), 300).0, Judgement::default());
    let silent = AgentFacts::Silent { has_agent: true };
    assert_eq!(states(&judged(&has, silent, 400).1)[2], ("Unknown", "AgentSilent", 400));
    let off = summary(Vec::new()).with(&Report { is_off: true, ..Report::default() });
    assert_eq!(states(&judged(&has, answered(&off), 500).1)[2].1, "HealthOff");
}

#[test]
fn condition_names_the_device_its_code_and_the_time() {
    let device = |at: &str, reason: Option<&str>, state: &str, since| FaultyDevice {
        address: at.to_owned(),
        reason: reason.map(str::to_owned),
        state: state.to_owned(),
        action: reason.map(|_| "RESTART_BM".to_owned()),
        since_unix_millis: since,
    };
    let critical = |name: &str, devices| Check {
        message: "It is bad.".to_owned(),
        devices,
        ..check(name, Area::Accelerators, Severity::Critical, 9_000_000)
    };
    let gpus = vec![
        device("0000:0f:00.0", Some("XidNodeReboot"), "Xid 79", Some(5_000_000)),
        device("0000:5b:00.0", Some("XidNodeReboot"), "Xid 119", Some(8_000_000)),
    ];
    let ports = vec![device("0000:2a:00.1", None, "mlx5_3 is 1: DOWN", None)];
    let checks = vec![critical("rdma_ports_down", ports), critical("gpus_need_reboot", gpus)];
    let summary = Summary { accelerators: Some(AcceleratorSources::default()), ..summary(checks) };
    let (judgement, after) = judged(&[], answered(&summary), 9_000);
    let new = judgement.writes[0].conditions.iter().find(|new| new.condition.area == Area::Accelerators).unwrap();
    assert_eq!((new.condition.status, new.condition.reason.as_str()), (False, "XidNodeReboot"));
    let expected = "0000:0f:00.0 since 1970-01-01T01:23:20Z: It is bad. Xid 79: drain the node and reboot it";
    assert!(new.message.starts_with(expected), "{}", new.message);
    assert!(new.message.ends_with(" Kernel messages are not read: set agent.kernelLog."), "{}", new.message);
    assert!(new.message.chars().count() <= 400);
    // The same summary again is not a transition.
    assert_eq!(judged(&after, answered(&summary), 9_100).0, Judgement::default());
}
