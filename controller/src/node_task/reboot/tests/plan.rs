//! The plan, step by step.

use std::time::Duration;

use api::TaskReason;
use vcn::Ocid;

use crate::cluster::oke_repair::OkeRepair;
use crate::cluster::store::NodeView;
use crate::node_task::action::Next as TaskNext;
use crate::node_task::reboot::drain::{Drain, EvictionRefusal, PodKey};
use crate::node_task::reboot::facts::{
    AgentBoot, Cordon, Effect, End, FleetReadiness, LeaderPlace, Mark, Next, NodeFacts, RebootFacts, RebootRecord,
    RebootRun, RebootStep, Refusal, ResetState,
};
use crate::node_task::reboot::plan::step;
use crate::node_task::reboot::run::finish;

const MINUTE: Duration = Duration::from_mins(1);

fn instance(name: &str) -> Ocid {
    format!("ocid1.instance.oc1.iad.{name}").parse().unwrap()
}

fn run(step: RebootStep, elapsed: Duration) -> RebootRun<'static> {
    let record = RebootRecord {
        boot_id: "before",
        instance: "ocid1.instance.oc1.iad.a",
        problems: vec!["root_disk_unused".to_owned()],
    };
    RebootRun { step, elapsed, watched: elapsed, drain_limit: 15 * MINUTE, record, is_canceled: false }
}

fn canceled(step: RebootStep, elapsed: Duration) -> RebootRun<'static> {
    RebootRun { is_canceled: true, ..run(step, elapsed) }
}

fn answered(boot_id: &str, problems: &[&str]) -> AgentBoot {
    let problems = problems.iter().map(|problem| (*problem).to_owned()).collect();
    AgentBoot::Answered { boot_id: boot_id.to_owned(), problems }
}

/// A node before its reset, cordoned by this task.
fn facts(instance: &Ocid) -> RebootFacts<'_> {
    let node = NodeFacts {
        instance: Some(instance),
        is_bare_metal: false,
        boot_id: "before",
        is_ready: true,
        cordon: Cordon::Own,
        is_disputed: false,
        mark: None,
        agent: answered("before", &["root_disk_unused"]),
        operation: None,
    };
    RebootFacts {
        node: Some(node),
        fleet: FleetReadiness { others: 10, not_ready: 1 },
        leader: LeaderPlace::Elsewhere,
        unknown_repair: None,
        other: None,
        drain: Ok(Drain::default()),
        reset: ResetState::Unsent { refusal: None },
        proven_for: None,
        is_stopped: false,
        is_enabled: true,
    }
}

fn with<'a>(mut facts: RebootFacts<'a>, change: impl FnOnce(&mut NodeFacts<'a>)) -> RebootFacts<'a> {
    change(facts.node.as_mut().unwrap());
    facts
}

fn reason(next: &Next) -> Option<(&'static str, TaskReason)> {
    match next {
        Next::End(End::Failed(reason, _)) => Some(("failed", *reason)),
        Next::End(End::FailedCordoned(reason, _)) => Some(("failed, cordoned", *reason)),
        Next::End(End::Skipped(reason, _)) => Some(("skipped", *reason)),
        _ => None,
    }
}

fn waits(next: &Next, part: &str) -> bool {
    matches!(next, Next::Wait(message) if message.contains(part))
}

const fn enter(step: RebootStep, is_recorded: bool) -> Next {
    Next::Enter { step, is_recorded }
}

#[test]
fn sound_node_is_cordoned_drained_reset_and_uncordoned() {
    let id = instance("a");
    let zero = Duration::ZERO;
    let at = |step_before, facts: &RebootFacts<'_>| step(&run(step_before, zero), facts);
    let fresh = || with(facts(&id), |node| node.cordon = Cordon::Absent);
    let first = RebootRun { record: RebootRecord::default(), ..run(RebootStep::Started, zero) };
    assert_eq!(
        step(&first, &fresh()),
        enter(RebootStep::Started, true),
        "the machine is recorded before anything else"
    );
    assert_eq!(at(RebootStep::Started, &fresh()), enter(RebootStep::Cordoning, true));
    assert_eq!(at(RebootStep::Cordoning, &fresh()), Next::Do(Effect::Cordon));
    assert_eq!(at(RebootStep::Cordoning, &facts(&id)), enter(RebootStep::Draining, false));
    let pod = PodKey { namespace: "shop".to_owned(), name: "web".to_owned(), uid: "u".to_owned() };
    let drain = Drain { evictable: vec![pod.clone()], ..Drain::default() };
    assert_eq!(at(RebootStep::Draining, &RebootFacts { drain: Ok(drain), ..facts(&id) }), Next::Do(Effect::Evict));
    let drain = Drain { leaving: vec![pod], ..Drain::default() };
    assert!(waits(&at(RebootStep::Draining, &RebootFacts { drain: Ok(drain), ..facts(&id) }), "shop/web is ending"));
    assert_eq!(at(RebootStep::Draining, &facts(&id)), enter(RebootStep::Resetting, true));
    assert_eq!(at(RebootStep::Resetting, &facts(&id)), Next::Do(Effect::Reset));
    let accepted = RebootFacts { reset: ResetState::Accepted, ..facts(&id) };
    assert_eq!(at(RebootStep::Resetting, &accepted), enter(RebootStep::Proving, false));
    let back = |held| {
        let facts = RebootFacts { proven_for: held, ..facts(&id) };
        with(facts, |node| {
            node.boot_id = "after";
            node.agent = answered("after", &["root_disk_unused"]);
        })
    };
    assert!(waits(&at(RebootStep::Proving, &back(None)), "healthy for 0 s"));
    assert!(waits(&at(RebootStep::Proving, &back(Some(119 * MINUTE / 60))), "healthy for 119 s"));
    assert_eq!(at(RebootStep::Proving, &back(Some(2 * MINUTE))), Next::End(End::Succeeded));
}

#[test]
fn node_that_others_work_on_is_skipped() {
    let id = instance("a");
    let view = |taints: &[&str], labels: &[(&str, &str)], leaving| NodeView {
        taints: taints.iter().map(|key| (*key).into()).collect(),
        labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        leaving,
        ..NodeView::default()
    };
    let operation = [("oke.oraclecloud.com/node_operation", "reboot")];
    for (node, expected, is_soft) in [
        (view(&["ToBeDeletedByClusterAutoscaler"], &[], false), TaskReason::Deleting, false),
        (view(&["DeletionCandidateOfClusterAutoscaler"], &[], false), TaskReason::Deleting, true),
        (view(&["karpenter.sh/disrupted"], &[], false), TaskReason::Deleting, false),
        (view(&["karpenter.sh/disruption"], &[], false), TaskReason::Deleting, false),
        (view(&[], &[], true), TaskReason::Deleting, false),
        (view(&[], &operation, false), TaskReason::OtherOperation, false),
        (view(&["oke.example/repair"], &[], false), TaskReason::OtherOperation, false),
    ] {
        let repair = OkeRepair::new(Some("oke.example/repair".to_owned()), false);
        let mark = Mark::of(&node, repair.of(&node).as_deref());
        let marked = |cordon| {
            with(facts(&id), |node| {
                node.cordon = cordon;
                node.mark.clone_from(&mark);
            })
        };
        let skipped = Some(("skipped", expected));
        assert_eq!(reason(&step(&run(RebootStep::Started, MINUTE), &marked(Cordon::Absent))), skipped, "{node:?}");
        assert_eq!(reason(&step(&run(RebootStep::Cordoning, MINUTE), &marked(Cordon::Absent))), skipped, "{node:?}");
        let during = step(&run(RebootStep::Draining, MINUTE), &marked(Cordon::Own));
        assert_eq!(reason(&during), skipped.filter(|_| !is_soft), "{node:?}");
    }
    assert_eq!(Mark::of(&view(&["node.kubernetes.io/unschedulable", "gpu"], &[("a", "b")], false), None), None);
}

#[test]
fn foreign_cordon_is_never_ours() {
    let id = instance("a");
    for cordon in [Cordon::Foreign, Cordon::Lifted] {
        let other = with(facts(&id), |node| node.cordon = cordon);
        let at = |before| reason(&step(&run(before, MINUTE), &other));
        assert_eq!(at(RebootStep::Draining), Some(("skipped", TaskReason::Cordoned)), "{cordon:?}");
        if cordon == Cordon::Foreign {
            assert_eq!(at(RebootStep::Started), Some(("skipped", TaskReason::Cordoned)));
            assert_eq!(at(RebootStep::Cordoning), Some(("skipped", TaskReason::Cordoned)));
        } else {
            assert_eq!(step(&run(RebootStep::Proving, MINUTE), &other), Next::Do(Effect::Unmark));
        }
    }
}

#[test]
fn reset_is_not_sent_to_a_node_that_was_uncordoned_meanwhile() {
    let id = instance("a");
    let foreign = with(facts(&id), |node| node.cordon = Cordon::Foreign);
    assert_eq!(step(&run(RebootStep::Resetting, MINUTE), &foreign), enter(RebootStep::Draining, false));
    let unknown = RebootFacts { unknown_repair: Some("forbidden".to_owned()), ..facts(&id) };
    assert!(waits(&step(&run(RebootStep::Started, MINUTE), &unknown), "OKE may repair the node: forbidden"));
    let stopped = RebootFacts { is_stopped: true, ..facts(&id) };
    assert_eq!(step(&run(RebootStep::Resetting, MINUTE), &stopped), enter(RebootStep::Draining, false));
}

#[test]
fn nothing_starts_while_many_others_are_not_ready() {
    let id = instance("a");
    let with_fleet = |others, not_ready| {
        let facts = RebootFacts { fleet: FleetReadiness { others, not_ready }, ..facts(&id) };
        with(facts, |node| node.cordon = Cordon::Absent)
    };
    for (others, not_ready, starts) in [(0, 0, true), (1, 1, false), (9, 1, false), (10, 1, true), (100, 11, false)] {
        let next = step(&run(RebootStep::Started, MINUTE), &with_fleet(others, not_ready));
        assert_eq!(next == enter(RebootStep::Cordoning, true), starts, "{not_ready} of {others}: {next:?}");
        assert!(starts || waits(&next, "more than 10 %"), "{next:?}");
    }
    assert!(waits(
        &step(&run(RebootStep::Started, MINUTE), &RebootFacts { is_stopped: true, ..with_fleet(9, 0) }),
        "stop switch"
    ));
}

#[test]
fn lease_moves_before_the_cordon_and_before_an_eviction() {
    let id = instance("a");
    let on_node = |has_successor, cordon| {
        let facts = RebootFacts { leader: LeaderPlace::OnNode { has_successor }, ..facts(&id) };
        with(facts, |node| node.cordon = cordon)
    };
    for (before, cordon) in [(RebootStep::Started, Cordon::Absent), (RebootStep::Draining, Cordon::Own)] {
        assert_eq!(step(&run(before, MINUTE), &on_node(true, cordon)), Next::Do(Effect::HandOver));
        let alone = on_node(false, cordon);
        assert!(waits(&step(&run(before, MINUTE), &alone), "no replica"));
    }
    let late = step(&run(RebootStep::Draining, 16 * MINUTE), &on_node(false, Cordon::Own));
    assert_eq!(reason(&late), Some(("failed", TaskReason::DrainBlocked)));
}

#[test]
fn blocked_drain_fails_at_its_deadline_with_pod_and_budget() {
    let id = instance("a");
    let pod = PodKey { namespace: "shop".to_owned(), name: "web-0".to_owned(), uid: "u".to_owned() };
    let message = "The disruption budget web needs 1 healthy pods and has 1 currently".to_owned();
    let refusal = Some(EvictionRefusal { pod: pod.clone(), message });
    let blocked = Drain { evictable: vec![pod.clone()], refusal, ..Drain::default() };
    let blocked = RebootFacts { drain: Ok(blocked), ..facts(&id) };
    assert_eq!(step(&run(RebootStep::Draining, 15 * MINUTE), &blocked), Next::Do(Effect::Evict));
    let Next::End(End::Failed(TaskReason::DrainBlocked, message)) =
        step(&run(RebootStep::Draining, 15 * MINUTE + MINUTE / 60), &blocked)
    else {
        panic!("not blocked")
    };
    assert!(message.contains("shop/web-0") && message.contains("budget web"), "{message}");
    let bare = Drain { kept: vec![(pod, "no controller")], ..Drain::default() };
    let bare = step(&run(RebootStep::Draining, Duration::ZERO), &RebootFacts { drain: Ok(bare), ..facts(&id) });
    assert_eq!(reason(&bare), Some(("failed", TaskReason::DrainBlocked)), "{bare:?}");
    // A clock that jumped ends nothing, and neither does the stop switch or a bad fleet keep a drained node cordoned.
    let jumped = RebootRun { watched: MINUTE, ..run(RebootStep::Draining, 60 * MINUTE) };
    assert_eq!(step(&jumped, &blocked), Next::Do(Effect::Evict));
    for waiting in [
        RebootFacts { is_stopped: true, ..facts(&id) },
        RebootFacts { fleet: FleetReadiness { others: 10, not_ready: 5 }, ..facts(&id) },
        RebootFacts { other: Some("b".to_owned()), ..facts(&id) },
    ] {
        assert!(matches!(step(&run(RebootStep::Draining, MINUTE), &waiting), Next::Wait(_)));
        let late = step(&run(RebootStep::Draining, 16 * MINUTE), &waiting);
        assert_eq!(reason(&late), Some(("failed", TaskReason::DrainBlocked)));
    }
    let unlisted = RebootFacts { drain: Err("list pods".to_owned()), ..facts(&id) };
    assert!(waits(&step(&run(RebootStep::Draining, MINUTE), &unlisted), "list pods"));
    let late = step(&run(RebootStep::Draining, 16 * MINUTE), &unlisted);
    assert_eq!(reason(&late), Some(("failed", TaskReason::DrainBlocked)));
}

#[test]
fn canceled_task_never_sends_a_reset() {
    let id = instance("a");
    for before in [RebootStep::Started, RebootStep::Cordoning, RebootStep::Draining, RebootStep::Resetting] {
        assert_eq!(step(&canceled(before, MINUTE), &facts(&id)), Next::End(End::Canceled), "{before:?}");
    }
    let uncertain = RebootFacts { reset: ResetState::Uncertain { refusal: None }, ..facts(&id) };
    assert!(waits(&step(&canceled(RebootStep::Resetting, 19 * MINUTE), &uncertain), "not sent again"));
    assert_eq!(step(&canceled(RebootStep::Resetting, 21 * MINUTE), &uncertain), Next::End(End::Canceled));
    let came = with(uncertain, |node| node.boot_id = "after");
    assert_eq!(step(&canceled(RebootStep::Resetting, MINUTE), &came), enter(RebootStep::Proving, false));
    assert!(waits(&step(&canceled(RebootStep::Proving, MINUTE), &facts(&id)), "boot id from before"));
}

#[test]
fn reset_is_repeated_only_until_it_shows_or_its_time_is_over() {
    let id = instance("a");
    let with_reset = |reset| RebootFacts { reset, ..facts(&id) };
    let refusal = |is_transient| Some(Refusal { message: "404".to_owned(), is_transient });
    let unsent = |is_transient| with_reset(ResetState::Unsent { refusal: refusal(is_transient) });
    let uncertain = |refusal| with_reset(ResetState::Uncertain { refusal });
    let at = |minutes, facts: &RebootFacts<'_>| step(&run(RebootStep::Resetting, minutes * MINUTE), facts);
    assert_eq!(at(1, &uncertain(None)), Next::Do(Effect::Reset));
    assert_eq!(at(11, &uncertain(None)), enter(RebootStep::Proving, false));
    assert_eq!(at(1, &unsent(true)), Next::Do(Effect::Reset));
    assert_eq!(reason(&at(11, &unsent(true))), Some(("failed", TaskReason::ResetRefused)));
    assert_eq!(reason(&at(1, &unsent(false))), Some(("failed", TaskReason::ResetRefused)));
    assert_eq!(at(1, &uncertain(refusal(false))), Next::Do(Effect::Reset));
    assert!(waits(&at(11, &uncertain(refusal(false))), "404"));
    assert_eq!(reason(&at(21, &uncertain(refusal(false)))), Some(("failed", TaskReason::ResetRefused)));
    let down = with(uncertain(refusal(false)), |node| node.is_ready = false);
    assert_eq!(at(11, &down), enter(RebootStep::Proving, false), "an earlier request was carried out");
    let rebooted = with(uncertain(None), |node| node.boot_id = "after");
    assert_eq!(at(1, &rebooted), enter(RebootStep::Proving, false));
    let gone = RebootFacts { node: None, ..with_reset(ResetState::Unsent { refusal: None }) };
    assert_eq!(reason(&at(1, &gone)), Some(("failed", TaskReason::NodeGone)));
}

#[test]
fn one_node_at_a_time_is_rebooted() {
    let id = instance("a");
    let waiting = || RebootFacts { other: Some("b".to_owned()), ..facts(&id) };
    let fresh = with(waiting(), |node| node.cordon = Cordon::Absent);
    assert!(waits(&step(&run(RebootStep::Started, MINUTE), &fresh), "b comes first"));
    assert_eq!(step(&run(RebootStep::Cordoning, MINUTE), &fresh), enter(RebootStep::Started, false));
    assert!(waits(&step(&run(RebootStep::Draining, MINUTE), &waiting()), "b comes first"));
}

#[test]
fn status_alone_restarts_no_instance() {
    let id = instance("a");
    let resets = [ResetState::Unsent { refusal: None }, ResetState::Uncertain { refusal: None }];
    for reset in resets {
        let unnamed = with(RebootFacts { reset: reset.clone(), ..facts(&id) }, |node| node.instance = None);
        assert!(matches!(step(&run(RebootStep::Resetting, MINUTE), &unnamed), Next::Wait(_)), "{reset:?}");
        let gone = RebootFacts { node: None, reset: reset.clone(), ..facts(&id) };
        assert_ne!(step(&run(RebootStep::Resetting, MINUTE), &gone), Next::Do(Effect::Reset), "{reset:?}");
    }
}

#[test]
fn node_fails_only_after_the_deadline_of_the_proof() {
    let id = instance("a");
    let missing = |change: &dyn Fn(&mut NodeFacts<'_>)| {
        let mut found = with(facts(&id), |node| {
            node.boot_id = "after";
            node.agent = answered("after", &[]);
        });
        change(found.node.as_mut().unwrap());
        found
    };
    let cases: [(&str, RebootFacts<'_>); 6] = [
        ("providerID", missing(&|node| node.instance = None)),
        ("boot id from before", missing(&|node| node.boot_id = "before")),
        ("not Ready", missing(&|node| node.is_ready = false)),
        ("does not answer", missing(&|node| node.agent = AgentBoot::Silent)),
        ("not answered since", missing(&|node| node.agent = answered("before", &[]))),
        (
            "new critical problem: fs_read_only",
            missing(&|node| node.agent = answered("after", &["root_disk_unused", "fs_read_only"])),
        ),
    ];
    for (part, facts) in cases {
        let at = |minutes, facts: &RebootFacts<'_>| step(&run(RebootStep::Proving, minutes * MINUTE), facts);
        assert!(waits(&at(30, &facts), part), "{part}: {:?}", at(30, &facts));
        assert_eq!(reason(&at(31, &facts)), Some(("failed, cordoned", TaskReason::NotProven)), "{part}");
        let metal = with(facts, |node| node.is_bare_metal = true);
        assert!(waits(&at(45, &metal), part));
        assert_eq!(reason(&at(46, &metal)), Some(("failed, cordoned", TaskReason::NotProven)), "{part}");
    }
    let new = RebootRun { watched: MINUTE, ..run(RebootStep::Proving, 60 * MINUTE) };
    let silent = missing(&|node| node.agent = AgentBoot::Silent);
    assert!(waits(&step(&new, &silent), "does not answer"), "a new leader judges nothing yet");
    let pending = missing(&|node| node.agent = AgentBoot::Pending);
    assert!(waits(&step(&run(RebootStep::Proving, 60 * MINUTE), &pending), "does not answer"));
    let healthy = missing(&|_| {});
    assert!(waits(&step(&run(RebootStep::Proving, 31 * MINUTE), &healthy), "healthy"), "the hold is not cut short");
    let gone = RebootFacts { node: None, ..facts(&id) };
    assert!(waits(&step(&run(RebootStep::Proving, 30 * MINUTE), &gone), "the Node is gone"));
    let late = step(&run(RebootStep::Proving, 31 * MINUTE), &gone);
    assert_eq!(reason(&late), Some(("failed", TaskReason::NodeGone)));
}

#[test]
fn other_instance_of_the_same_name_is_replaced() {
    let other = instance("b");
    for before in
        [RebootStep::Started, RebootStep::Cordoning, RebootStep::Draining, RebootStep::Resetting, RebootStep::Proving]
    {
        let next = step(&run(before, MINUTE), &facts(&other));
        assert_eq!(reason(&next), Some(("failed", TaskReason::Replaced)), "{before:?}");
    }
}

#[test]
fn node_without_a_possible_proof_is_left_alone() {
    let id = instance("a");
    let at = |change: &dyn Fn(&mut NodeFacts<'_>)| {
        let mut facts = with(facts(&id), |node| node.cordon = Cordon::Absent);
        change(facts.node.as_mut().unwrap());
        step(&run(RebootStep::Started, MINUTE), &facts)
    };
    assert_eq!(reason(&at(&|node| node.instance = None)), Some(("skipped", TaskReason::NoInstance)));
    assert_eq!(reason(&at(&|node| node.is_disputed = true)), Some(("skipped", TaskReason::NoInstance)));
    assert_eq!(reason(&at(&|node| node.boot_id = "")), Some(("skipped", TaskReason::NotReady)));
    assert_eq!(reason(&at(&|node| node.agent = AgentBoot::Missing)), Some(("failed", TaskReason::AgentSilent)));
    assert!(waits(&at(&|node| node.agent = AgentBoot::Pending), "no report of"));
    let broken = at(&|node| {
        node.is_ready = false;
        node.agent = AgentBoot::Silent;
    });
    assert_eq!(broken, enter(RebootStep::Cordoning, true), "a reboot may repair it");
}

#[test]
fn reboot_that_was_switched_off_ends_before_the_reset_and_says_how_to_uncordon() {
    let a = instance("a");
    let off = || RebootFacts { is_enabled: false, ..facts(&a) };
    for from in [RebootStep::Cordoning, RebootStep::Draining] {
        let next = step(&run(from, MINUTE), &off());
        assert_eq!(reason(&next), Some(("failed", TaskReason::NotEnabled)), "{from:?}");
        let Next::End(end) = next else { panic!("{next:?}") };
        let TaskNext::Failed(_, message) = finish(end, "node-a", false) else { panic!("it failed") };
        assert!(message.contains("kubectl uncordon node-a"), "{message}");
    }
    // Nothing of the reset was sent yet.
    assert_eq!(step(&run(RebootStep::Resetting, MINUTE), &off()), enter(RebootStep::Draining, false));
    let TaskNext::Succeeded(message) = finish(End::Succeeded, "node-a", false) else { panic!("it succeeded") };
    assert!(message.contains("kubectl uncordon node-a"), "{message}");
}

#[test]
fn reboot_waits_while_an_operation_runs_on_the_node() {
    let id = instance("a");
    let busy = |cordon| {
        with(facts(&id), |node| {
            (node.cordon, node.operation) = (cordon, Some("oke-node-growfs.service"));
        })
    };
    let at = |from, cordon, elapsed| step(&run(from, elapsed), &busy(cordon));
    let started = at(RebootStep::Started, Cordon::Absent, Duration::from_hours(1));
    assert!(waits(&started, "oke-node-growfs.service runs on the node"), "{started:?}");
    assert_eq!(at(RebootStep::Cordoning, Cordon::Absent, MINUTE), enter(RebootStep::Started, false));
    assert!(waits(&at(RebootStep::Draining, Cordon::Own, MINUTE), "oke-node-growfs.service"));
    let late = at(RebootStep::Draining, Cordon::Own, 16 * MINUTE);
    assert_eq!(reason(&late), Some(("failed", TaskReason::DrainBlocked)));
}
