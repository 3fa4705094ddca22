//! A cluster in memory. Each step takes a second; a leader steps its engine every few seconds, and carries the actions out. It can be
//! killed before or after each of them.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::{NodePolicy, NodePolicyStatus, POLICY_FINALIZER};
use health::Summary;
use health::report::Verdict;
use health::rules::{Action, Severity};
use health::summary::{Check, NodePolicyState};
use serde_json::{Value, json};
use tokio::time::Instant;
use tunables::files::FileGrant;
use tunables::{
    AnsweredPolicy, DesiredHostFile, DocumentMode, FilesAnswer, FilesState, ItemReport, ItemState, LeaderTerm,
    NodeAnswer, NodeDocument, PolicyState,
};

use crate::cluster::node_condition::KubeletProblem;
use crate::cluster::store::NodeView;

use super::node_files::NodeFiles;
use crate::fleet::judge::AgentFacts;
use crate::node_policy::engine::{Actions, Engine, GrowthWorld, POLL, PolicyObjects, SendProblem, StatusUpdate, World};
use crate::node_policy::files::{FileActions, FilePod};
use crate::node_policy::node_input::NodeInput;
use crate::operations::GrowthTask;

const GRANTS: [FileGrant; 2] = [FileGrant::HostFiles, FileGrant::HostCode];
const SECOND: Duration = Duration::from_secs(1);
const SILENCE: Duration = Duration::from_secs(300);
const COUNTS_EVERY: Duration = Duration::from_secs(30);

/// What a node does with a revision that is bad for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Item,
    NotReady,
    Problem,
    Silence,
}

pub(super) struct Agent {
    pub(super) view: NodeView,
    pub(super) document: NodeDocument,
    /// Revisions that it ever got.
    pub(super) ever: BTreeSet<String>,
    /// What revisions with this value do to it.
    pub(super) fault: Option<Fault>,
    /// Whether it takes policies, and whether it answers.
    pub(super) is_supporting: bool,
    pub(super) is_silent: bool,
    /// Whether its release knows files.
    pub(super) takes_files: bool,
    pub(super) files: NodeFiles,
    /// Whether a document ever made it keep the values of a policy.
    pub(super) was_kept: bool,
    /// Whether each of its answers names other policies that no object has.
    pub(super) is_inventing: bool,
    answers: Cell<usize>,
    has_problem: bool,
    /// Whether its root disk has unused space.
    pub(super) is_unused: bool,
    // What the leader knows.
    summary: Option<Summary>,
    answered: Option<Instant>,
    next_poll: Instant,
}

pub(super) struct Cluster {
    pub(super) now: Instant,
    pub(super) policies: BTreeMap<String, NodePolicy>,
    /// Uids of policies of a later version, by name.
    pub(super) unreadable: BTreeMap<String, String>,
    pub(super) agents: Vec<Agent>,
    by_name: BTreeMap<String, usize>,
    pub(super) engine: Engine,
    leader_since: Instant,
    term: LeaderTerm,
    pub(super) stopped: Option<String>,
    interval: Duration,
    pub(super) writes: usize,
    written: BTreeMap<String, Instant>,
    next_step: Instant,
    /// What another leader writes before this one's next write.
    pub(super) foreign: Option<NodePolicyStatus>,
    /// Actions until the leader dies.
    pub(super) lives: Option<usize>,
    /// Growths by their tasks' names, and the nodes of those that were requested.
    pub(super) tasks: BTreeMap<String, GrowthTask>,
    pub(super) grown: Vec<(String, String)>,
    pub(super) is_growing_enabled: bool,
    /// The most nodes that had an unproven change at the same time.
    pub(super) most_moving: usize,
    /// The most nodes whose files changed at the same time.
    pub(super) most_changing: usize,
}

/// The value that is bad for a node with a fault.
pub(super) const BAD: &str = "666";

pub(super) fn policy(name: &str, spec: &Value) -> NodePolicy {
    let created = "2026-11-01T00:00:00Z";
    let metadata = json!({ "name": name, "uid": format!("uid-{name}"), "generation": 1, "creationTimestamp": created });
    let mut whole = json!({ "allNodes": true, "mode": "Apply", "settings": { "sysctls": { "vm.swappiness": "10" } } });
    for (field, value) in spec.as_object().unwrap() {
        whole[field] = value.clone();
    }
    serde_json::from_value(json!({ "metadata": metadata, "spec": whole })).unwrap()
}

impl Agent {
    fn new(name: String, now: Instant) -> Self {
        let labels = [("name".to_owned(), name.clone())].into_iter().collect();
        Self {
            view: NodeView { name, labels, ..NodeView::default() },
            document: NodeDocument::default(),
            ever: BTreeSet::new(),
            fault: None,
            is_supporting: true,
            is_silent: false,
            takes_files: false,
            files: NodeFiles::default(),
            was_kept: false,
            is_inventing: false,
            answers: Cell::new(0),
            has_problem: false,
            is_unused: false,
            summary: None,
            answered: None,
            next_poll: now,
        }
    }

    fn take(&mut self, document: NodeDocument) {
        self.ever.extend(document.policies.iter().map(|policy| policy.revision.clone()));
        self.was_kept |= document.policies.iter().any(|policy| policy.mode == DocumentMode::Keep);
        self.document = document;
        let is_bad = self.is_bad();
        match self.fault {
            Some(Fault::NotReady) => self.view.kubelet = is_bad.then(unready),
            Some(Fault::Problem) => self.has_problem = is_bad,
            Some(Fault::Silence) if is_bad => self.is_silent = true,
            _ => {}
        }
    }

    fn is_bad(&self) -> bool {
        let applied = |policy: usize| self.document.policy(policy).is_some_and(|it| it.mode == DocumentMode::Apply);
        self.fault.is_some() && self.document.sysctls.iter().any(|entry| entry.value == BAD && applied(entry.policy))
    }

    pub(super) fn answer(&self, now: Instant) -> NodeAnswer {
        let files = self.files.answer(&self.document, now).filter(|_| self.takes_files);
        let of_files = |index: usize| match &files {
            Some(files) if self.document.files.iter().any(|file| file.policy == index) => match files.state {
                FilesState::RolledBack => Some(PolicyState::Failed),
                state => state.is_unsettled().then_some(PolicyState::Applying),
            },
            _ => None,
        };
        let fails = self.is_bad() && self.fault == Some(Fault::Item);
        let state = if fails { PolicyState::Failed } else { PolicyState::Applied };
        let policies = self.document.policies.iter().enumerate().map(|(index, policy)| AnsweredPolicy {
            name: policy.name.clone(),
            uid: policy.uid.clone(),
            revision: policy.revision.clone(),
            mode: policy.mode,
            state: of_files(index).unwrap_or(state),
            on_delete: policy.on_delete,
        });
        let number = self.answers.replace(self.answers.get() + 1);
        let invented = (0..if self.is_inventing { 49 } else { 0 }).map(|other| AnsweredPolicy {
            uid: format!("{}-{number}-{other}", self.view.name),
            revision: "r".to_owned(),
            mode: DocumentMode::Apply,
            state,
            ..AnsweredPolicy::default()
        });
        let reports = self.document.sysctls.iter().filter_map(|entry| {
            let policy = self.document.policy(entry.policy)?;
            let item = |state| ItemReport {
                item: entry.key.clone(),
                policy: policy.name.clone(),
                state,
                current: "60".to_owned(),
                desired: entry.value.clone(),
                message: String::new(),
            };
            match policy.mode {
                DocumentMode::Report => Some(item(ItemState::Drifted)),
                DocumentMode::Apply if fails => Some(item(ItemState::Failed)),
                _ => None,
            }
        });
        NodeAnswer {
            version: 1,
            document: self.document.revision.clone(),
            cluster: self.document.cluster.clone(),
            policies: policies.chain(invented).collect(),
            items: reports.chain(self.rolled_back(files.as_ref())).collect(),
            baseline: self.document.baseline.clone(),
            files: files.clone(),
            ..NodeAnswer::default()
        }
        .bounded()
    }

    /// The files that were rolled back.
    fn rolled_back(&self, files: Option<&FilesAnswer>) -> Vec<ItemReport> {
        let is_rolled_back = files.is_some_and(|files| files.state == FilesState::RolledBack);
        let item = |file: &DesiredHostFile| ItemReport {
            item: file.path.clone(),
            policy: self.document.policy(file.policy).map(|policy| policy.name.clone()).unwrap_or_default(),
            state: ItemState::RolledBack,
            current: String::new(),
            desired: String::new(),
            message: String::new(),
        };
        self.document.files.iter().filter(|_| is_rolled_back).map(item).collect()
    }

    fn current_summary(&self, now: Instant) -> Summary {
        let answer = self.answer(now);
        let state =
            NodePolicyState { document: answer.document.clone(), answer: answer.digest(), files: self.takes_files };
        let mut checks = if self.has_problem { vec![problem("gateway_unreachable")] } else { Vec::new() };
        if self.is_unused {
            let message = "of 100.0 GiB, 50.0 GiB are in no partition".to_owned();
            checks.push(Check { severity: Severity::Warning, message, ..problem("root_disk_unused") });
        }
        Summary { node_policy: self.is_supporting.then_some(state), checks, ..Summary::default() }
    }

    /// The revision that it has of a policy; empty without any.
    pub(super) fn revision(&self, policy: &str) -> &str {
        let found = self.document.policies.iter().find(|it| it.name == policy);
        found.map_or("", |it| &it.revision)
    }

    /// The value that it has of a kernel setting.
    pub(super) fn value(&self, key: &str) -> Option<&str> {
        let applied = |policy: usize| self.document.policy(policy).is_some_and(|it| it.mode == DocumentMode::Apply);
        let entry = self.document.sysctls.iter().find(|entry| entry.key == key && applied(entry.policy));
        entry.map(|entry| entry.value.as_str())
    }
}

fn unready() -> KubeletProblem {
    KubeletProblem { reason: "KubeletNotReady".to_owned(), message: String::new(), since: None }
}

fn problem(name: &str) -> Check {
    Check {
        name: name.to_owned(),
        subject: None,
        area: health::Area::Network,
        verdict: Verdict::Problem,
        severity: Severity::Critical,
        action: Action::Report,
        message: String::new(),
        since_unix_millis: 1,
        not_measured: None,
        devices: Vec::new(),
    }
}

impl Cluster {
    pub(super) fn new(agents: usize, interval: Duration) -> Self {
        let now = Instant::now();
        let agents: Vec<Agent> = (0..agents).map(|number| Agent::new(format!("n{number}"), now)).collect();
        let by_name = agents.iter().enumerate().map(|(index, agent)| (agent.view.name.clone(), index)).collect();
        let mut cluster = Self {
            now,
            policies: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            agents,
            by_name,
            engine: Engine::default(),
            leader_since: now,
            term: LeaderTerm { lease: "l".to_owned(), number: 0 },
            stopped: None,
            interval,
            writes: 0,
            written: BTreeMap::new(),
            next_step: now,
            foreign: None,
            lives: None,
            tasks: BTreeMap::new(),
            grown: Vec::new(),
            is_growing_enabled: true,
            most_moving: 0,
            most_changing: 0,
        };
        cluster.elect();
        cluster
    }

    /// Another leader, which knows nothing.
    pub(super) fn elect(&mut self) {
        self.engine = Engine::default();
        self.term.number += 1;
        (self.leader_since, self.next_step) = (self.now, self.now);
        self.written.clear();
        let agents = u32::try_from(self.agents.len().max(1)).unwrap();
        let spread = Duration::from_secs(30).min(self.interval) / agents;
        for (number, agent) in (0_u32..).zip(&mut self.agents) {
            (agent.summary, agent.answered, agent.next_poll) = (None, None, self.now + spread * number);
        }
    }

    pub(super) fn apply(&mut self, mut policy: NodePolicy) {
        let name = policy.metadata.name.clone().unwrap();
        if let Some(known) = self.policies.get(&name) {
            policy.metadata.generation = known.metadata.generation.map(|generation| generation + 1);
            policy.metadata.finalizers.clone_from(&known.metadata.finalizers);
            policy.status.clone_from(&known.status);
        }
        self.policies.insert(name, policy);
    }

    pub(super) fn delete(&mut self, name: &str) {
        let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH);
        self.policies.get_mut(name).unwrap().metadata.deletion_timestamp = Some(time);
    }

    pub(super) fn status(&self, name: &str) -> NodePolicyStatus {
        self.policies.get(name).and_then(|policy| policy.status.clone()).unwrap_or_default()
    }

    /// The reason of the condition Progressing.
    pub(super) fn progress(&self, name: &str) -> String {
        let status = self.status(name);
        let found = api::condition::find(&status.conditions, api::ConditionType::Progressing);
        found.map(|it| it.reason.clone()).unwrap_or_default()
    }

    pub(super) fn agent(&mut self, name: &str) -> &mut Agent {
        let index = self.by_name[name];
        &mut self.agents[index]
    }

    /// How many nodes have a revision of a policy.
    pub(super) fn having(&self, policy: &str, revision: &str) -> usize {
        self.agents.iter().filter(|agent| agent.revision(policy) == revision).count()
    }

    /// Lets time pass until something holds, at most so many seconds. Returns how many it took.
    pub(super) fn until(&mut self, seconds: u64, what: &str, mut holds: impl FnMut(&Self) -> bool) -> u64 {
        for second in 0..=seconds {
            if holds(self) {
                return second;
            }
            self.second();
        }
        let statuses: Vec<_> = self.policies.values().map(|it| it.status.clone()).collect();
        panic!("not within {seconds} s: {what}; {statuses:#?}");
    }

    pub(super) fn run(&mut self, seconds: u64) {
        (0..seconds).for_each(|_| self.second());
    }

    fn second(&mut self) {
        for agent in &mut self.agents {
            agent.files.second(self.now);
            if agent.takes_files {
                agent.view.kubelet = agent.files.is_broken().then(unready);
            }
            if agent.next_poll <= self.now {
                if !agent.is_silent {
                    (agent.summary, agent.answered) = (Some(agent.current_summary(self.now)), Some(self.now));
                }
                agent.next_poll = self.now + self.interval;
            }
        }
        if self.next_step <= self.now {
            self.step();
        }
        self.note_changes();
        self.now += SECOND;
    }

    /// The most nodes whose files change at the same time; they are in one domain.
    fn note_changes(&mut self) {
        let changing: Vec<&Agent> = self.agents.iter().filter(|agent| agent.files.is_changing()).collect();
        let domain = |agent: &&Agent| agent.view.labels.map().get("topology.kubernetes.io/zone").cloned();
        let domains: BTreeSet<Option<String>> = changing.iter().map(domain).collect();
        assert!(domains.len() <= 1, "{domains:?}");
        self.most_changing = self.most_changing.max(changing.len());
    }

    fn step(&mut self) {
        let objects = self.policies.iter().map(|(name, policy)| (name.clone(), Arc::new(policy.clone())));
        let policies = PolicyObjects { objects: objects.collect(), unreadable: self.unreadable.clone() };
        let since = self.leader_since;
        let facts = |agent: &Agent| {
            let last = agent.answered.unwrap_or(since);
            self.now.saturating_duration_since(last) > SILENCE
        };
        let inputs: Vec<NodeInput<'_>> = self
            .agents
            .iter()
            .map(|agent| {
                let state = match &agent.summary {
                    _ if facts(agent) => AgentFacts::Silent { has_agent: true },
                    Some(summary) => AgentFacts::Answered { summary, is_failing: false },
                    None => AgentFacts::Pending { is_failing: false },
                };
                NodeInput { view: &agent.view, agent: state, answered: agent.answered }
            })
            .collect();
        let pods: Vec<FilePod> = self.agents.iter().filter_map(|agent| agent.files.pod(&agent.view.name)).collect();
        let stopped = self.stopped.clone();
        let (policies, nodes, term, now) = (&policies, &inputs, &self.term, self.now);
        let growth = GrowthWorld { is_enabled: self.is_growing_enabled, tasks: Some(&self.tasks) };
        let stopped = stopped.as_deref();
        let world =
            World { policies, nodes, stopped, cluster: "c", term, grants: &GRANTS, pods: Some(&pods), now, growth };
        let actions = self.engine.step(&world);
        assert!(actions.send.iter().all(|(_, document)| document.term == self.term));
        let moving = actions.due_summaries.len();
        self.next_step = self.now + if moving > 0 || !actions.read.is_empty() { 3 * SECOND } else { 15 * SECOND };
        let moved = self.engine.in_flight();
        self.most_moving = self.most_moving.max(moved);
        self.carry_out(actions);
    }

    /// Whether the leader dies here.
    fn dies(&mut self) -> bool {
        match &mut self.lives {
            Some(0) => {
                self.lives = None;
                self.elect();
                true
            }
            Some(lives) => {
                *lives -= 1;
                false
            }
            None => false,
        }
    }

    fn carry_out(&mut self, actions: Actions) {
        let Actions { send, read, due_summaries, files, statuses, finalizers, grow } = actions;
        let now = self.now;
        for request in grow {
            let name = request.key().task_name();
            assert!(!self.tasks.contains_key(&name), "{name} was created already");
            self.tasks.insert(name.clone(), GrowthTask::of(&request.key().task(&request.node)));
            self.grown.push((request.node, name));
            if self.dies() {
                return;
            }
        }
        for node in due_summaries {
            let agent = self.agent(&node);
            agent.next_poll = agent.next_poll.min(agent.answered.map_or(now, |answered| now.max(answered + POLL)));
        }
        for (node, document) in send {
            if self.dies() {
                return;
            }
            let agent = self.agent(&node);
            let result = if agent.is_silent {
                Err(SendProblem { is_refused: false, message: "slow".to_owned() })
            } else {
                agent.take(document);
                Ok(agent.answer(now))
            };
            if self.dies() {
                return;
            }
            self.engine.note_sent(&node, result, now);
        }
        for node in read {
            let agent = self.agent(&node);
            let result = if agent.is_silent { Err("slow".to_owned()) } else { Ok(agent.answer(now)) };
            self.engine.note_read(&node, result, now);
        }
        for update in finalizers {
            if self.dies() {
                return;
            }
            let name = update.object.metadata.name.clone().unwrap();
            if update.is_removed {
                self.policies.remove(&name);
            } else if let Some(policy) = self.policies.get_mut(&name) {
                policy.metadata.finalizers = Some(vec![POLICY_FINALIZER.to_owned()]);
                self.next_step = now + SECOND;
            }
        }
        if !self.carry_out_files(files) {
            return;
        }
        for update in statuses {
            if !self.write(update) {
                return;
            }
        }
    }

    /// Whether the leader still lives.
    fn carry_out_files(&mut self, actions: FileActions) -> bool {
        let now = self.now;
        for end in actions.delete {
            if self.dies() {
                return false;
            }
            self.agent(&end.node).files.delete();
            self.engine.note_pod_deleted(&end, now);
        }
        for request in actions.create {
            if self.dies() {
                return false;
            }
            let agent = self.agent(&request.node);
            let document = agent.document.clone();
            agent.files.create(&request.order, &document, now);
            if self.dies() {
                return false;
            }
        }
        for confirmation in actions.confirm {
            if self.dies() {
                return false;
            }
            let agent = self.agent(&confirmation.node);
            let is_confirmed = agent.view.kubelet.is_none() && agent.files.confirm(&confirmation.order);
            let answer = agent.answer(now);
            if self.dies() {
                return false;
            }
            match is_confirmed {
                true => self.engine.note_read(&confirmation.node, Ok(answer), now),
                false => self.engine.note_unconfirmed(&confirmation.node),
            }
        }
        true
    }

    /// Whether the leader still lives.
    fn write(&mut self, update: StatusUpdate) -> bool {
        let StatusUpdate { object, status, is_urgent } = update;
        let (name, uid) = (object.metadata.name.clone().unwrap(), object.metadata.uid.clone().unwrap());
        let is_early = self.written.get(&uid).is_some_and(|at| self.now < *at + COUNTS_EVERY);
        if is_early && !is_urgent {
            return true;
        }
        if self.dies() {
            return false;
        }
        let Some(policy) = self.policies.get_mut(&name) else { return true };
        if let Some(foreign) = self.foreign.take() {
            policy.status = Some(foreign);
            policy.metadata.resource_version = Some("foreign".to_owned());
            self.engine.note_conflict(&object);
            return true;
        }
        policy.status = Some(status.clone());
        self.writes += 1;
        if self.dies() {
            return false;
        }
        self.written.insert(uid.clone(), self.now);
        self.engine.note_written(&uid, &object.status.clone().unwrap_or_default(), status);
        if is_urgent {
            self.next_step = self.now + SECOND;
        }
        true
    }
}
