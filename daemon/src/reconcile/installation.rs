//! The installer's stage: when it runs, and the conditions that its report makes.

#[cfg(test)]
mod tests;

use installer::{ConflistState, Decision, Note, NoteKind, ProvidedNetwork, Report, Signal, Signals, Snapshot};
use resident::logging::chain;

use super::StageReport;
use super::context::Context;
use super::node_state::NodeState;
use super::ownership::{Owner, Ownership};
use crate::decide::usage::Usage;
use crate::facts::condition::{Condition, Reason};
use crate::facts::node_facts::NodeFacts;
use crate::facts::reconcile_report::{Cause, Changed, PodNetworkState};
use crate::settings::Settings;
use crate::sources::container_runtime::ContainerRuntime;

/// The installer's last run. It reads binaries of some MiB, so it does not run at kernel events, nor while all files that it
/// reads are unchanged.
#[derive(Debug)]
pub(super) struct Installation {
    last: Option<LastRun>,
    runtime: ContainerRuntime,
}

#[derive(Debug)]
struct LastRun {
    settings: installer::Settings,
    signals: Signals,
    usable: bool,
    decision: Decision,
    state: PodNetworkState,
    conditions: Vec<Condition>,
    /// The files before that run; `None` if it changed any, or has to run again for another reason.
    files: Option<Snapshot>,
}

impl Installation {
    pub(super) fn new() -> Self {
        Self { last: None, runtime: ContainerRuntime::current() }
    }

    /// Whether the node had our pod network in the last reconcile.
    pub(super) fn is_ours(&self) -> bool {
        self.last.as_ref().is_some_and(|last| last.decision.install)
    }

    /// The owner of this node's pod network. Computed first: on a foreign node, nothing that pods use is changed.
    pub(super) fn owner(&self, settings: &Settings, world: &NodeFacts, cause: Cause) -> Owner {
        let signals = world.signals(&settings.signals);
        let decided;
        let decision = match &self.last {
            Some(last) if cause == Cause::Kernel && last.has_inputs(settings, &signals) => &last.decision,
            _ => {
                decided = installer::decision(&settings.installer, &signals);
                &decided
            }
        };
        let ownership = match (decision.install, decision.another) {
            (true, _) => Ownership::Ours,
            (false, true) => Ownership::Other,
            (false, false) => Ownership::Unknown,
        };
        // The cluster is said to have no VCN-native pod networking.
        let flannel = decision.another && matches!(decision.decided_by, Signal::NodeLabel | Signal::InstanceMetadata);
        // OKE creates a NativePodNetwork for its own CNI; no source may have answered yet whether there is one.
        let may_be_okes = world.npn.value.as_ref().map_or(!flannel, Option::is_some);
        Owner { ownership, oke: decision.oke || may_be_okes }
    }

    /// Installs the binaries if the node has our pod network, and the configuration if pods can use an address.
    pub(super) fn run(&mut self, context: &Context<'_>, stages: &mut StageReport) -> PodNetworkState {
        let (settings, cause) = (&*context.node.settings, context.cause);
        let (our_network, usable) = (context.is_ours(), stages.is_usable());
        let signals = context.facts.signals(&settings.signals);
        if let Some(last) = &self.last
            && last.has_inputs(settings, &signals)
            && last.usable == usable
            && last.decision.install == our_network
            && (cause == Cause::Kernel || last.still_holds(settings))
        {
            stages.conditions.extend(last.conditions.iter().cloned());
            return last.state.clone();
        }
        let found = looked_at(settings);
        let report = match cause {
            Cause::Preview => installer::dry_run(&settings.installer, &signals, usable),
            _ => installer::reconcile(&settings.installer, &signals, usable),
        };
        stages.changes.extend(report.steps.iter().map(|step| Changed::new("cni", step)));
        let conditions = conditions(&report, self.runtime, are_published(context.node));
        stages.conditions.extend(conditions.iter().cloned());
        let state = PodNetworkState {
            install: report.decision.install,
            decided_by: report.decision.decided_by.to_string(),
            reason: report.decision.reason.clone(),
            status: report.status().to_string(),
            notes: report.notes.iter().map(|note| note.message.clone()).collect(),
        };
        if cause != Cause::Preview {
            // These may change although no file does: a plugin answers, a pod ends, a file can be read.
            let doubtful = |note: &Note| {
                use NoteKind::{DropInRefused, LeftBehind, PluginUnanswered, PluginUnsure, UnusableBefore};
                matches!(
                    note.kind,
                    PluginUnanswered | PluginUnsure | UnusableBefore | DropInRefused | LeftBehind { .. }
                )
            };
            let content = report.failures.is_empty() && !report.notes.iter().any(doubtful);
            let files = (content && report.steps.is_empty()).then_some(found);
            let settings = settings.installer.clone();
            let (decision, state) = (report.decision, state.clone());
            self.last = Some(LastRun { settings, signals, usable, decision, state, conditions, files });
        }
        state
    }
}

impl LastRun {
    /// Whether it follows from these settings and signals.
    fn has_inputs(&self, settings: &Settings, signals: &Signals) -> bool {
        self.settings == settings.installer && self.signals == *signals
    }

    /// Whether the installer would say the same.
    fn still_holds(&self, settings: &Settings) -> bool {
        self.files.as_ref().is_some_and(|files| *files == looked_at(settings))
    }
}

/// The files that the installer reads.
fn looked_at(settings: &Settings) -> Snapshot {
    let installer = &settings.installer;
    [&installer.source_dir, &installer.cni_bin_dir, &installer.cni_conf_dir, &installer.data_dir]
        .into_iter()
        .fold(Snapshot::default(), |files, directory| files.with(directory))
}

/// A failure stops new pods unless the configuration, which follows the binaries, is in place. Another program's file stops
/// them with a runtime that does not pass it over. Pods that start while a plugin is left out never get what it does.
fn conditions(report: &Report, runtime: ContainerRuntime, are_published: bool) -> Vec<Condition> {
    let condition = |error: &installer::Error| {
        let (reason, message) = (Reason::InstallerFailed, chain(error));
        let condition = match report.conflist {
            ConflistState::InPlace | ConflistState::NotInstalled => Condition::degraded(reason, message),
            ConflistState::Waiting | ConflistState::Pending => Condition::blocking(reason, message),
        };
        condition.about(error.word())
    };
    let noted = report.notes.iter().filter_map(|note| {
        let (severity, reason) = severity(note.kind, runtime, are_published)?;
        let condition = severity(reason, note.message.clone());
        let has_subject = reason != Reason::RuntimeConfigurationMissing;
        Some(if has_subject { condition.about(&note.subject) } else { condition })
    });
    report.failures.iter().map(condition).chain(noted).collect()
}

type Severity = fn(Reason, String) -> Condition;

/// How severe a note is, if it is a condition at all.
fn severity(kind: NoteKind, runtime: ContainerRuntime, are_published: bool) -> Option<(Severity, Reason)> {
    let unusable: Severity = match runtime {
        ContainerRuntime::CriO => Condition::degraded,
        ContainerRuntime::Unknown => Condition::blocking,
    };
    Some(match kind {
        NoteKind::UnusableBefore => (unusable, Reason::RuntimeConfigurationBlocked),
        NoteKind::DropInRefused => (Condition::blocking, Reason::RuntimeConfigurationBlocked),
        NoteKind::LacksPlugins => (unusable, Reason::RuntimeConfigurationPreceded),
        // With Multus, pods have a NetworkAttachmentDefinition in place of the annotation.
        NoteKind::SortsBefore { gives } | NoteKind::SortsBeforeCopy { gives } => {
            (preceded(gives)?, Reason::RuntimeConfigurationPreceded)
        }
        NoteKind::PluginMissing => (Condition::blocking, Reason::PluginMissing),
        NoteKind::PluginUnanswered => (Condition::degraded, Reason::PluginUnanswered),
        NoteKind::LeftBehind { another, is_used } => {
            let stops_pods = is_used && !are_published;
            // While no signal names the owner, one that pods start by is in order.
            if !stops_pods && !another {
                return None;
            }
            let severity = if stops_pods { Condition::blocking } else { Condition::degraded };
            (severity, Reason::RuntimeConfigurationLeft)
        }
        NoteKind::NoneThere => (Condition::blocking, Reason::RuntimeConfigurationMissing),
        NoteKind::PluginLeftOut | NoteKind::PluginUnsure | NoteKind::Extended | NoteKind::NotChained => return None,
    })
}

/// How severe a configuration that sorts first is if its plugins exist. One that calls other networks may call our network.
fn preceded(gives: ProvidedNetwork) -> Option<Severity> {
    match gives {
        ProvidedNetwork::CalledNetwork => None,
        ProvidedNetwork::Nothing => Some(Condition::blocking),
        ProvidedNetwork::Network => Some(Condition::degraded),
    }
}

/// Whether addresses of this boot are published: then pods start with our configuration, although no agent maintains their network.
fn are_published(node: &NodeState) -> bool {
    node.pools().is_ok_and(|pools| Usage::offers_any(&pools))
}
