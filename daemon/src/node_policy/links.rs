//! Options of links: one change at a time, with a journal, kept only if the node can still be reached.
//!
//! ```text
//!   observed, boot_target ─▶ tunables::links::choose ─▶ plan ─▶ apply: probe ─▶ journal ─▶ change ─▶ probe ─▶ leader polled ─▶ kept
//!   an agent that was killed ─▶ journal ─▶ recover                                            └──────────────────┴─▶ restore
//! ```

mod apply;
mod boot_target;
mod journal;
mod observed;
mod plan;
mod probe;
mod restore;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use installer::{forget_policy_settings, note_policy_settings, policy_settings};
use installer::{read_link_option, write_link_option};
use ipam::BootId;
use netlink::Sysctls;
use resident::logging::chain;
use tunables::links::choose;
use tunables::{Item, ItemReport, ItemState, LinkOption, NodeDocument};

use super::contact::LeaderContact;
use super::history::History;
use super::plan::{Facts, Record, Step, StepKind, unrestored};
use super::resolve::Resolved;
use super::sysctls::Observed;
use super::writers::name_writers;
use crate::facts::node_facts::NodeFacts;
use crate::probes::ProbeEnvironment;
use crate::settings::Settings;
use apply::{Change, Ended, parts};
use journal::{Journal, Verdict, identity};
use observed::ObservedLink;
use plan::LinkHistory;

/// What changes links. It is called from one thread at a time.
#[derive(Debug)]
pub(super) struct LinkApplier {
    settings: Arc<Settings>,
    boot: BootId,
    sysctls: Sysctls,
    environment: ProbeEnvironment,
    journal: Journal,
    history: History,
    /// When a change was undone because no request of the leader arrived.
    undone_at: Option<Instant>,
    /// Since when each link is known, by name and address.
    known_since: BTreeMap<(String, Option<String>), Instant>,
    /// The links of the first list are as old as the process.
    started: Instant,
}

/// What it needs to know.
#[derive(Clone, Debug)]
pub(super) struct LinkContext {
    pub(super) document: Arc<NodeDocument>,
    pub(super) facts: NodeFacts,
    pub(super) phase: AgentPhase,
    pub(super) contact: LeaderContact,
    pub(super) stop: StopFlag,
}

/// What the agent does while links are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AgentPhase {
    /// Before the agent is ready: only what was proven on this node before, without waiting for the leader.
    Start,
    Running,
}

/// Set when the agent ends: a change that waits for its confirmation is undone at once.
#[derive(Clone, Debug, Default)]
pub(super) struct StopFlag(Arc<AtomicBool>);

/// What became of links.
#[derive(Clone, Debug, Default)]
pub(super) struct LinkOutcome {
    /// Options that are not as the document says; each names its policy.
    pub(super) reports: Vec<ItemReport>,
    pub(super) in_sync: u32,
    /// Earlier values that could not be restored, and why.
    pub(super) unrestored: Vec<String>,
}

/// Whether a change of a link is in progress, or was left by an agent that was killed.
pub(crate) fn has_unfinished_change(data_dir: &Path) -> bool {
    let mut journal = Journal::new(data_dir);
    journal.read().is_ok() && journal.content.unfinished.is_some()
}

impl StopFlag {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl LinkApplier {
    pub(super) fn new(settings: Arc<Settings>, boot: BootId) -> Self {
        let (sysctls, journal) = (Sysctls::new(&settings.sysctl_root), Journal::new(&settings.data_dir));
        let (environment, history) = (ProbeEnvironment::of_this_process(), History::default());
        Self {
            settings,
            boot,
            sysctls,
            environment,
            journal,
            history,
            undone_at: None,
            known_since: BTreeMap::new(),
            started: Instant::now(),
        }
    }

    /// Restores an unfinished change, of an earlier agent or one that could not be undone yet: before everything else, also
    /// without a document. An error says what is left of it.
    pub(super) fn recover(&mut self) -> Result<(), String> {
        if let Err(error) = self.journal.read() {
            tracing::warn!(event = "policy.journal_unreadable", error = chain(&error));
            if !self.journal.is_read() {
                return Err(chain(&error));
            }
        }
        let Some(change) = &self.journal.content.unfinished else { return Ok(()) };
        let items: Vec<&str> = change.steps.iter().map(|step| &*step.item).collect();
        tracing::warn!(event = "policy.link_recovered", items = items.join(" "), "a change of a link was not finished");
        let message = "the agent ended before the change was confirmed".to_owned();
        let verdict = change.verdict.clone().unwrap_or(Verdict { state: ItemState::Unconfirmed, message });
        let noted = self.journal.update(|content| {
            if let Some(change) = &mut content.unfinished {
                change.verdict = Some(verdict);
            }
        });
        let failures = apply::undo(&self.settings, &self.boot, &self.sysctls, &mut self.journal);
        let failures = noted.err().map(|error| chain(&error)).unwrap_or_default() + &failures;
        if !failures.is_empty() {
            tracing::warn!(event = "policy.link_not_restored", failures);
        }
        if self.journal.content.unfinished.is_none() { Ok(()) } else { Err(failures) }
    }

    /// Brings links in sync with a document, also with one that names none. It may wait for minutes: it has a thread of its own.
    /// Nothing while it is unknown which links the node has, or if the agent ends. An error as from [`Self::recover`].
    pub(super) fn apply(&mut self, context: &LinkContext) -> Result<Option<LinkOutcome>, String> {
        self.recover()?;
        Ok(self.compare(context))
    }

    fn compare(&mut self, context: &LinkContext) -> Option<LinkOutcome> {
        let notes = policy_settings(&self.settings.data_dir, &self.boot).unwrap_or_default();
        let of_link = |item: &Item| matches!(item, Item::Link { .. });
        let items = notes.into_iter().filter_map(|it| Some((it.key.parse().ok().filter(of_link)?, it)));
        let mut record: Record = items.collect();
        if context.document.links.is_empty() && record.is_empty() {
            return Some(LinkOutcome::default());
        }
        let vnics = Some(context.facts.vnics()).filter(|vnics| !vnics.is_empty())?;
        let links = observed::read(&self.settings, vnics).map_err(|error| {
            tracing::warn!(event = "policy.links_unread", error = chain(&error));
        });
        let mut links = links.ok()?;
        // The metadata service may name a new link's VNIC in a moment: until then it is left alone.
        let unknown = self.unknown(&context.facts, &links);
        links.retain(|it| !unknown.contains(&it.facts.name));
        record.retain(|item, _| !matches!(item, Item::Link { link, .. } if unknown.contains(link)));
        let instance = context.facts.instance.value.as_ref().map(|instance| instance.id.to_string());
        let own = self.journal.update(|content| content.keep_own(instance.as_deref(), &context.document.cluster));
        own.map_err(|error| tracing::warn!(event = "policy.link_not_recorded", error = chain(&error))).ok()?;
        let facts: Vec<_> = links.iter().map(|it| it.facts.clone()).collect();
        let resolved = plan::resolve(&context.document, choose(&context.document, &facts));
        let (planned, now) = (self.plan(context, &resolved, &links, &record), Instant::now());
        let mut outcome = self.note(context, &resolved, planned.rest, &record);
        outcome.unrestored.extend(self.restore(planned.restores, now));
        let mut is_whole = unknown.is_empty();
        for (name, change) in planned.changes {
            let found = links.iter().find(|it| it.facts.name == name);
            let Some(link) = found.filter(|_| context.phase == AgentPhase::Running || !change.needs_leader) else {
                is_whole = false;
                continue;
            };
            let Self { settings, boot, sysctls, environment, journal, .. } = self;
            let carried_out = Change { settings, boot, sysctls, environment, context, journal, record: &record };
            let ended = carried_out.carry_out(link, change.steps, change.needs_leader);
            if ended.is_stopped {
                return None;
            }
            self.conclude(ended, &mut outcome);
        }
        is_whole.then_some(outcome)
    }

    /// The links that no VNIC has, and that came after the last list of VNICs.
    fn unknown(&mut self, facts: &NodeFacts, links: &[ObservedLink]) -> Vec<String> {
        let now = Instant::now();
        let since = if self.known_since.is_empty() { self.started } else { now };
        let key = |it: &ObservedLink| (it.facts.name.clone(), it.facts.mac.clone());
        let earlier = std::mem::take(&mut self.known_since);
        self.known_since = links.iter().map(|it| (key(it), earlier.get(&key(it)).copied().unwrap_or(since))).collect();
        let listed = facts.vnics.age(now).and_then(|age| now.checked_sub(age));
        let is_newer = |it: &&ObservedLink| {
            listed.is_none_or(|listed| self.known_since.get(&key(it)).is_some_and(|since| *since > listed))
        };
        links.iter().filter(|it| !it.facts.is_configured).filter(is_newer).map(|it| it.facts.name.clone()).collect()
    }

    fn plan(
        &self,
        context: &LinkContext,
        resolved: &Resolved,
        links: &[ObservedLink],
        record: &Record,
    ) -> plan::LinkPlan {
        let items = resolved.apply.keys().chain(resolved.report.keys()).chain(record.keys());
        let observed = items.filter_map(|item| Some((item.clone(), self.observe(item, resolved)?))).collect();
        let macs: BTreeMap<String, Option<String>> =
            links.iter().map(|it| (it.facts.name.clone(), identity(&it.link))).collect();
        let owned = record.keys().filter(|item| observed::is_of_agent(item, links)).cloned().collect();
        let has_leader = self.undone_at.is_none_or(|at| context.contact.last().is_some_and(|last| last.accepted > at));
        let history = LinkHistory { journal: &self.journal.content, macs: &macs, has_leader, owned: &owned };
        let (document, now) = (&*context.document, Instant::now());
        let (observed, items) = (&observed, &self.history);
        let facts = Facts { document, resolved, record, observed, history: items, trials: None, now };
        plan::plan(facts, history)
    }

    /// The value of an item; nothing if its link is gone.
    fn observe(&self, item: &Item, resolved: &Resolved) -> Option<Observed> {
        let (link, option) = parts(item).ok()?;
        let value = match read_link_option(&link, option, &self.sysctls) {
            Ok(value) => value,
            Err(error) if error.is_not_found() => return None,
            Err(error) => return Some(Observed::Unreadable(chain(&error))),
        };
        // An offload is on if any of its features is.
        let is_on_desired =
            [&resolved.apply, &resolved.report].iter().any(|all| all.get(item).is_some_and(|it| it.value == "true"));
        let is_list = |value: &str| matches!(option, LinkOption::Offload(_)) && value != "false";
        Some(match value {
            None => Observed::Unsupported,
            Some(value) if is_on_desired && is_list(&value) => Observed::Value(true.to_string()),
            Some(value) => Observed::Value(value),
        })
    }

    /// Notes what needs no change.
    fn note(
        &mut self,
        context: &LinkContext,
        resolved: &Resolved,
        planned: super::plan::Plan,
        record: &Record,
    ) -> LinkOutcome {
        self.history.retain(|item| resolved.apply.contains_key(item) || record.contains_key(item));
        let moved = planned.moved(&context.document, record);
        let in_sync = planned.compared + u32::try_from(planned.in_sync.len()).unwrap_or(u32::MAX);
        let mut outcome = LinkOutcome { reports: planned.reports, in_sync, unrestored: planned.unrestored };
        for (item, desired) in planned.in_sync {
            self.history.note_in_sync(&item, &desired.value);
        }
        for (item, value) in planned.stopped {
            self.history.note_stop(&item, &value, Instant::now());
        }
        name_writers(&mut outcome.reports, resolved, &self.settings.host_root);
        let forget: Vec<String> = planned.forget.iter().map(ToString::to_string).collect();
        let (data_dir, boot) = (&self.settings.data_dir, &self.boot);
        let recorded =
            note_policy_settings(data_dir, boot, &moved).and_then(|()| forget_policy_settings(data_dir, boot, &forget));
        if let Err(error) = recorded {
            tracing::warn!(event = "policy.link_not_recorded", error = chain(&error));
        }
        outcome
    }

    /// Gives links the values back that they had before policies. These worked, so nothing is probed. Returns what failed.
    fn restore(&mut self, steps: Vec<Step>, now: Instant) -> Vec<String> {
        let (mut restored, mut failed) = (Vec::new(), Vec::new());
        for step in steps {
            let Ok((link, option)) = parts(&step.item) else { continue };
            match write_link_option(&link, option, &step.to, &self.sysctls) {
                Ok(_) => {
                    tracing::info!(event = "policy.link_restored", item = %step.item, from = step.from, to = step.to);
                    restored.push(step.item.to_string());
                }
                Err(error) => {
                    let error = chain(&error);
                    tracing::warn!(event = "policy.link_not_restored", item = %step.item, error);
                    failed.push(unrestored(&step.item, &step.to, &error));
                    self.history.note_refused(&step.item, &step.to, &error, now);
                }
            }
        }
        if let Err(error) = forget_policy_settings(&self.settings.data_dir, &self.boot, &restored) {
            tracing::warn!(event = "policy.link_not_recorded", error = chain(&error));
        }
        failed
    }

    fn conclude(&mut self, ended: Ended, outcome: &mut LinkOutcome) {
        let now = Instant::now();
        for step in ended.kept {
            outcome.in_sync += 1;
            if matches!(step.kind, StepKind::SetBack(_)) {
                self.history.note_set_back(&step.item, &step.to, now);
            }
            self.history.note_in_sync(&step.item, &step.to);
        }
        for (step, error) in ended.refused {
            self.history.note_refused(&step.item, &step.to, &error, now);
            outcome.reports.extend(step.report(ItemState::Failed, error));
        }
        if ended.reports.iter().any(|it| it.state == ItemState::Unconfirmed) {
            self.undone_at = Some(now);
        }
        outcome.reports.extend(ended.reports);
    }
}
