//! Which Pods start when: domains, budgets, failures, confirmations.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::TaskReason;
use api::operation::OperationReport;
use tokio::time::Instant;
use tunables::FilesState;

use super::{Confirmation, FileBudget, FileNode, FileOwner, FilePod, FilesInput, FilesMemory, PodEnd, plan};
use crate::operations::PodState;

const ORDER: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const OWNER: FileOwner<'_> = FileOwner { uid: "u", revision: "r" };

fn node(name: &'static str, domain: &str, state: FilesState) -> FileNode<'static> {
    FileNode {
        name,
        domain: domain.to_owned(),
        order: Some(ORDER),
        state,
        kubelet_started: None,
        owners: vec![OWNER],
        is_ready: true,
        is_busy: false,
    }
}

fn pod(node: &str, state: PodState) -> FilePod {
    FilePod { name: format!("files-{node}"), node: node.to_owned(), order: ORDER[..16].to_owned(), state }
}

struct Fleet {
    nodes: Vec<FileNode<'static>>,
    pods: Vec<FilePod>,
    limit: usize,
    failures: usize,
    unavailable: BTreeSet<String>,
    domains: BTreeMap<String, String>,
    is_stopped: bool,
    memory: FilesMemory,
    now: Instant,
}

impl Fleet {
    fn of(nodes: Vec<FileNode<'static>>) -> Self {
        let (pods, unavailable) = (Vec::new(), BTreeSet::new());
        let (memory, now) = (FilesMemory::default(), Instant::now());
        let domains = BTreeMap::new();
        Self { nodes, pods, limit: 2, failures: 0, unavailable, domains, is_stopped: false, memory, now }
    }

    fn actions(&self) -> super::FileActions {
        let budget =
            FileBudget { max_unavailable: self.limit, max_failures: self.failures, unavailable: &self.unavailable };
        let budgets = BTreeMap::from([("u", budget)]);
        let (nodes, pods) = (&self.nodes, &self.pods);
        let (budgets, domains) = (&budgets, &self.domains);
        plan(&FilesInput { nodes, pods, domains, budgets, is_stopped: self.is_stopped, now: self.now }, &self.memory)
    }

    /// Some seconds later, the Pods are listed.
    fn see_pods(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.memory.note_pods(Some(&self.pods), self.now);
    }

    fn created(&self) -> Vec<String> {
        self.actions().create.into_iter().map(|request| request.node).collect()
    }
}

use FilesState::{Applied, Changing, Confirmable, Due, NotGranted, RolledBack};

#[test]
fn first_node_of_a_revision_changes_alone() {
    let mut fleet = Fleet::of(vec![node("a", "1", Due), node("b", "1", Due), node("c", "1", Due)]);
    assert_eq!(fleet.created(), ["a"]);
    fleet.nodes[0].state = Applied;
    assert_eq!(fleet.created(), ["b", "c"]);
    fleet.limit = 1;
    assert_eq!(fleet.created(), ["b"]);
    fleet.nodes[0].state = RolledBack;
    assert_eq!(fleet.created(), [""; 0], "no other node gets what was rolled back");
}

#[test]
fn rolled_back_revision_holds_other_revisions_of_its_policy_up_no_more() {
    let stable = FileOwner { uid: "u", revision: "stable" };
    let back = FileNode { owners: vec![stable], ..node("b", "1", Due) };
    assert_eq!(Fleet::of(vec![node("a", "1", RolledBack), back]).created(), ["b"]);
}

#[test]
fn nodes_that_change_are_in_one_domain() {
    let mut fleet =
        Fleet::of(vec![node("a", "1", Due), node("b", "2", Due), node("c", "1", Due), node("d", "1", Applied)]);
    fleet.limit = 4;
    assert_eq!(fleet.created(), ["a", "c"]);
    fleet.pods = vec![pod("a", PodState::Running)];
    assert_eq!(fleet.created(), ["c"]);
    // Also one whose Pod is not known any more.
    fleet.pods.clear();
    (fleet.nodes[0].state, fleet.nodes[1].state, fleet.nodes[2].state) = (Applied, Confirmable, Due);
    assert_eq!(fleet.created(), ["b"]);
    fleet.nodes[1].state = Applied;
    assert_eq!(fleet.created(), ["c"]);
}

#[test]
fn node_that_has_not_answered_counts_while_its_pod_runs() {
    let mut fleet = Fleet::of(vec![node("a", "1", Applied), node("b", "1", Due), node("c", "2", Due)]);
    fleet.pods = vec![pod("x", PodState::Running)];
    fleet.domains = [("x".to_owned(), "2".to_owned())].into();
    assert_eq!(fleet.created(), ["c"]);
    fleet.limit = 1;
    assert_eq!(fleet.created(), [""; 0]);
}

#[test]
fn unavailable_nodes_count_but_one_node_may_always_change() {
    let mut fleet = Fleet::of(vec![node("a", "1", Due), node("b", "1", Due), node("c", "1", Applied)]);
    fleet.unavailable = ["x".to_owned()].into();
    assert_eq!(fleet.created(), ["a"]);
    fleet.unavailable = ["x".to_owned(), "y".to_owned(), "z".to_owned()].into();
    assert_eq!(fleet.created(), ["a"], "a rollback never waits for nodes that stay broken");
    fleet.pods = vec![pod("a", PodState::Running)];
    assert_eq!(fleet.created(), [""; 0]);
}

#[test]
fn files_of_a_policy_that_left_are_undone_in_its_budget() {
    let leaving = FileOwner { uid: "u", revision: "" };
    let nodes = ["a", "b", "c"].map(|name| FileNode { owners: vec![leaving], ..node(name, "1", Due) });
    let mut fleet = Fleet::of(nodes.to_vec());
    assert_eq!(fleet.created(), ["a", "b"]);
    // No object has the policy any more: one at a time.
    let unknown = FileOwner { uid: "gone", revision: "" };
    fleet.nodes.iter_mut().for_each(|node| node.owners = vec![unknown]);
    assert_eq!(fleet.created(), ["a"]);
}

#[test]
fn pod_starts_only_where_it_can_and_may() {
    for (what, change) in [
        ("NotReady", (|node| node.is_ready = false) as fn(&mut FileNode<'static>)),
        ("request in flight", |node| node.is_busy = true),
        ("another order", |node| node.order = None),
        ("nothing to do", |node| node.state = Applied),
        ("no grant", |node| node.state = NotGranted),
        ("rolled back", |node| node.state = RolledBack),
    ] {
        let mut fleet = Fleet::of(vec![node("a", "1", Due)]);
        change(&mut fleet.nodes[0]);
        assert_eq!(fleet.created(), [""; 0], "{what}");
    }
    let mut fleet = Fleet::of(vec![node("a", "1", Due)]);
    fleet.is_stopped = true;
    assert_eq!(fleet.created(), [""; 0]);
}

#[test]
fn change_whose_pod_died_gets_another_pod() {
    let mut fleet = Fleet::of(vec![node("a", "1", Changing), node("b", "2", Confirmable)]);
    assert_eq!(fleet.created(), ["a", "b"], "although another domain changes: these do already");
    fleet.pods = vec![pod("a", PodState::Running), pod("b", PodState::Running)];
    assert_eq!(fleet.created(), [""; 0]);
}

#[test]
fn node_changes_from_the_first_pod_to_the_next_one() {
    let mut fleet = Fleet::of(vec![node("a", "1", Confirmable)]);
    fleet.pods = vec![pod("a", PodState::Invalid("Error 137".to_owned()))];
    fleet.memory.note_pods(Some(&fleet.pods), fleet.now);
    assert!(fleet.memory.is_changing("a", fleet.now), "a guard may restore its files");
    let end = fleet.actions().delete.remove(0);
    fleet.memory.note_end(&end, fleet.now);
    fleet.memory.note_pods(Some(&[]), fleet.now);
    for (seconds, is_changing) in [(40, true), (70, false)] {
        let now = fleet.now + Duration::from_secs(seconds);
        assert_eq!(fleet.memory.is_changing("a", now), is_changing, "after {seconds} s");
    }
}

#[test]
fn pod_that_ended_is_deleted_and_its_node_left_alone_for_a_while() {
    let mut fleet = Fleet::of(vec![node("a", "1", Due)]);
    let report = |reason| PodState::Ended(OperationReport::new(reason, "read order.json"));
    fleet.pods = vec![pod("a", report(TaskReason::Succeeded))];
    let actions = fleet.actions();
    assert_eq!((actions.delete.len(), actions.create.len()), (1, 0));
    assert_eq!(actions.delete[0].failure, None);
    let mut failed = false;
    for attempt in 1..=3_u32 {
        fleet.pods = vec![pod("a", report(TaskReason::OperationFailed))];
        let end = fleet.actions().delete.remove(0);
        assert_eq!(end.failure.as_deref(), Some("read order.json"));
        assert!(!failed);
        fleet.memory.note_end(&end, fleet.now);
        fleet.pods.clear();
        assert_eq!(fleet.created(), [""; 0]);
        fleet.now += Duration::from_secs(if attempt < 3 { 30 * u64::from(attempt) } else { 600 });
        assert_eq!(fleet.created(), ["a"]);
        failed = fleet.memory.has_failed("a", ORDER);
    }
    assert!(failed, "then the rollout takes the revision back");
    let other = format!("f{}", &ORDER[1..]);
    assert!(!fleet.memory.has_failed("a", &other));
}

#[test]
fn pod_that_does_not_start_is_deleted_after_a_while() {
    let mut fleet = Fleet::of(vec![node("a", "1", Due)]);
    fleet.pods = vec![pod("a", PodState::Pulling("ErrImagePull".to_owned()))];
    fleet.see_pods(0);
    fleet.see_pods(120);
    assert_eq!(fleet.actions(), super::FileActions::default());
    fleet.see_pods(1);
    assert_eq!(fleet.actions().delete[0].failure.as_deref(), Some("it has not started: ErrImagePull"));
}

#[test]
fn pod_that_never_ends_keeps_other_domains_waiting_only_for_its_limit() {
    let mut fleet = Fleet::of(vec![node("a", "1", Due), node("b", "2", Due)]);
    fleet.pods = vec![pod("x", PodState::Running)];
    fleet.domains = [("x".to_owned(), "1".to_owned())].into();
    (fleet.limit, fleet.nodes[0].is_ready) = (2, false);
    fleet.see_pods(0);
    fleet.see_pods(360);
    assert_eq!(fleet.created(), [""; 0]);
    fleet.see_pods(1);
    let actions = fleet.actions();
    assert_eq!(actions.delete[0].failure.as_deref(), Some("it did not end in time"), "its node is dead");
    assert_eq!(actions.create[0].node, "b");
    // The next Pod has the same name.
    let pods = std::mem::take(&mut fleet.pods);
    fleet.see_pods(3);
    fleet.pods = pods;
    fleet.see_pods(30);
    assert_eq!(fleet.actions().delete, []);
}

#[test]
fn agent_that_says_for_ever_that_it_changes_keeps_no_other_node_waiting() {
    let mut fleet = Fleet::of(vec![node("a", "1", Confirmable), node("b", "2", Due)]);
    // No Pod can start there.
    fleet.nodes[0].is_ready = false;
    fleet.see_pods(0);
    assert_eq!(fleet.created(), [""; 0], "a former leader's Pod may have changed it");
    fleet.now += Duration::from_secs(300);
    assert_eq!(fleet.created(), ["b"]);
    fleet.pods = vec![pod("a", PodState::Running)];
    fleet.see_pods(0);
    fleet.pods.clear();
    fleet.see_pods(299);
    assert_eq!(fleet.created(), [""; 0], "its Pod was there until now");
    fleet.see_pods(1);
    assert_eq!(fleet.created(), ["b"]);
}

#[test]
fn node_that_stays_due_after_pods_that_succeed_has_failed_until_it_settles() {
    let mut fleet = Fleet::of(vec![node("a", "1", Due)]);
    let end = PodEnd { pod: "p".to_owned(), node: "a".to_owned(), order: ORDER[..16].to_owned(), failure: None };
    for pods in 1..=4 {
        fleet.memory.note_end(&end, fleet.now);
        assert_eq!(fleet.memory.has_failed("a", ORDER), pods == 4, "{pods} Pods");
    }
    fleet.now += Duration::from_secs(600);
    fleet.memory.retain(fleet.now, |_| true, |_| true);
    assert!(!fleet.memory.has_failed("a", ORDER));
}

#[test]
fn change_is_confirmed_also_while_rollouts_are_stopped() {
    let mut fleet = Fleet::of(vec![node("a", "1", Confirmable)]);
    (fleet.is_stopped, fleet.nodes[0].kubelet_started) = (true, Some(7));
    assert_eq!(fleet.actions().confirm, [], "its Pod died");
    fleet.pods = vec![pod("a", PodState::Running)];
    let confirmation = Confirmation { node: "a".to_owned(), order: ORDER.to_owned(), kubelet_started: Some(7) };
    assert_eq!(fleet.actions().confirm, [confirmation]);
    fleet.nodes[0].order = None;
    assert_eq!(fleet.actions().confirm, [], "what another leader sent is not confirmed");
}
