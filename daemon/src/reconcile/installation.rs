//! The installer's stage: when to run it, and its report in our words.

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use installer::{Answers, Conflist, Decision, Gives, Note, Report, Signal, Signals, Snapshot, Taken};
use ipam::{BootId, Pools};
use resident::logging::chain;

use super::Findings;
use crate::decide::usage::Usage;
use crate::report::condition::{Condition, Reason};
use crate::report::reconcile_report::{Cause, Changed, PodNetworkState};
use crate::settings::Settings;
use crate::sources::backoff::chance;
use crate::sources::container_runtime::ContainerRuntime;
use crate::sources::facts::World;

/// How long it is believed that nothing changed because no file looks changed: disks lose bits, too.
const THOROUGH: Duration = Duration::from_secs(3600);

/// What the installer was last asked and said. It reads binaries of some MiB and starts each for its versions, so it is not
/// asked at kernel events, nor as long as all files that it looks at are the same.
#[derive(Debug)]
pub(super) struct Installation {
    last: Option<Last>,
    runtime: ContainerRuntime,
    /// Plugins are asked beside the passes: one that hangs must not keep a repair.
    answers: Answers,
    /// Set when one has answered otherwise than the last look was told: what was found then holds no longer.
    corrected: Arc<AtomicBool>,
}

/// Whose a node's pod network is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// Ours to serve.
    Ours,
    /// Somebody else's, or to be.
    Others,
    /// Nothing says for sure whose it is: silence, or doubt.
    Unknown,
}

/// What the installer makes of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verdict {
    /// Whose its pod network is.
    pub(super) whose: Whose,
    /// Whether OKE's own CNI may use VNICs here.
    pub(super) oke: bool,
}

#[derive(Debug)]
struct Last {
    /// By which it went.
    settings: installer::Settings,
    signals: Signals,
    usable: bool,
    decision: Decision,
    state: PodNetworkState,
    conditions: Vec<Condition>,
    /// As it found them; nothing when it changed any, or is to be asked again for another reason.
    files: Option<Snapshot>,
    at: Instant,
}

impl Installation {
    /// That of an agent that has just started; `told` is told when another look is worth while.
    pub(super) fn new(told: impl Fn() + Send + Sync + 'static) -> Self {
        let corrected = Arc::new(AtomicBool::new(false));
        let correction = corrected.clone();
        let answers = Answers::beside(chance, move || {
            correction.store(true, Ordering::Release);
            told();
        });
        Self { last: None, runtime: ContainerRuntime::current(), answers, corrected }
    }

    /// That of whoever looks once: plugins are waited for as long as they may take.
    pub(super) fn of_one_look() -> Self {
        let (answers, runtime) = (Answers::waited_for(), ContainerRuntime::current());
        Self { last: None, runtime, answers, corrected: Arc::default() }
    }

    /// Whether the last pass found the pod network to be ours.
    pub(super) fn is_ours(&self) -> bool {
        self.last.as_ref().is_some_and(|last| last.decision.install)
    }

    /// Whose the pod network of this node is. Asked first: where it is not ours, nothing is touched that pods live by.
    pub(super) fn verdict(&self, settings: &Settings, world: &World, cause: Cause) -> Verdict {
        let signals = world.signals(&settings.signals);
        let asked;
        let decision = match &self.last {
            Some(last) if cause == Cause::Kernel && last.was_asked(settings, &signals) => &last.decision,
            _ => {
                asked = installer::decision(&settings.installer, &signals);
                &asked
            }
        };
        let whose = match (decision.install, decision.another) {
            (true, _) => Whose::Ours,
            (false, true) => Whose::Others,
            (false, false) => Whose::Unknown,
        };
        // The cluster is said to have no VCN-native pod networking.
        let flannel = decision.another && matches!(decision.decided_by, Signal::NodeLabel | Signal::InstanceMetadata);
        // OKE makes a NativePodNetwork for its own CNI; whether there is one, nobody may have answered yet.
        let may_be_okes = world.npn.value.as_ref().map_or(!flannel, Option::is_some);
        Verdict { whose, oke: decision.oke || may_be_okes }
    }

    /// Brings binaries and configuration into place where they belong: where the pod network is `ours`, as
    /// [`Self::verdict`] says, and the configuration where an address is `usable`.
    pub(super) fn stage(
        &mut self,
        settings: &Settings,
        world: &World,
        (ours, usable, cause): (bool, bool, Cause),
        findings: &mut Findings,
    ) -> PodNetworkState {
        let signals = world.signals(&settings.signals);
        if let Some(last) = &self.last
            && last.was_asked(settings, &signals)
            && last.usable == usable
            && last.decision.install == ours
            && (cause == Cause::Kernel || !self.corrected.load(Ordering::Acquire) && last.still_holds(settings))
        {
            findings.conditions.extend(last.conditions.iter().cloned());
            return last.state.clone();
        }
        let found = looked_at(settings);
        if cause != Cause::Preview {
            // Before it looks: what comes meanwhile is for the next look.
            self.corrected.store(false, Ordering::Release);
        }
        let report = match cause {
            Cause::Preview => installer::dry_run(&settings.installer, &signals, usable, &self.answers),
            _ => installer::reconcile(&settings.installer, &signals, usable, &self.answers),
        };
        findings.changes.extend(report.steps.iter().map(|step| Changed::new("cni", step)));
        let conditions = conditions(&report, self.runtime, &settings.state_dir);
        findings.conditions.extend(conditions.iter().cloned());
        let state = PodNetworkState {
            install: report.decision.install,
            decided_by: report.decision.decided_by.to_string(),
            reason: report.decision.reason.clone(),
            status: report.status().to_string(),
            notes: report.notes.iter().map(ToString::to_string).collect(),
        };
        if cause != Cause::Preview {
            // A plugin that did not answer may do so the next time; pods that keep our configuration end; what a link leads to
            // may come.
            let doubtful = |note: &Note| {
                matches!(
                    note,
                    Note::KeptInChain { .. }
                        | Note::Unsure { .. }
                        | Note::Unanswered { .. }
                        | Note::Awaited { .. }
                        | Note::UnreadBefore { .. }
                        | Note::LeftBehind { .. }
                )
            };
            let content = report.failures.is_empty() && !report.notes.iter().any(doubtful);
            let files = (content && report.steps.is_empty()).then_some(found);
            let at = Instant::now();
            let settings = settings.installer.clone();
            let (decision, state) = (report.decision, state.clone());
            self.last = Some(Last { settings, signals, usable, decision, state, conditions, files, at });
        }
        state
    }
}

impl Last {
    /// Whether it was asked by these settings and signals.
    fn was_asked(&self, settings: &Settings, signals: &Signals) -> bool {
        self.settings == settings.installer && self.signals == *signals
    }

    /// Whether the installer would say the same.
    fn still_holds(&self, settings: &Settings) -> bool {
        self.at.elapsed() < THOROUGH && self.files.as_ref().is_some_and(|files| *files == looked_at(settings))
    }
}

/// The files that the installer looks at.
fn looked_at(settings: &Settings) -> Snapshot {
    let installer = &settings.installer;
    [&installer.source_dir, &installer.cni_bin_dir, &installer.cni_conf_dir, &installer.data_dir]
        .into_iter()
        .fold(Snapshot::default(), |files, directory| files.with(directory))
}

/// A failure stops new pods unless the configuration is there, which follows the binaries. A file of somebody else's stops
/// them with a runtime that does not pass it over. Pods that start while a plugin is left out never get what it does.
fn conditions(report: &Report, runtime: ContainerRuntime, state_dir: &Path) -> Vec<Condition> {
    let condition = |error: &installer::Error| {
        let (reason, message) = (Reason::InstallerFailed, chain(error));
        let condition = match report.conflist {
            Conflist::InPlace | Conflist::NotWanted => Condition::degraded(reason, message),
            Conflist::Waiting | Conflist::Pending => Condition::blocking(reason, message),
        };
        condition.about(error.word())
    };
    let unusable = |reason, note: &Note| match runtime {
        ContainerRuntime::CriO => Condition::degraded(reason, note.to_string()),
        ContainerRuntime::Unknown => Condition::blocking(reason, note.to_string()),
    };
    let noted = report.notes.iter().filter_map(|note| match note {
        Note::MalformedBefore { file, .. } | Note::UnreadBefore { file, .. } => {
            Some(unusable(Reason::RuntimeConfigurationBlocked, note).about(file))
        }
        Note::SortsBefore { file, missing, .. } if !missing.is_empty() => {
            Some(unusable(Reason::RuntimeConfigurationPreceded, note).about(file))
        }
        Note::SortsBefore { file, gives, taken, .. } => {
            let severity = preceded(*gives, *taken)?;
            Some(severity(Reason::RuntimeConfigurationPreceded, note.to_string()).about(file))
        }
        Note::MissingInChain { plugin } => {
            Some(Condition::blocking(Reason::PluginMissing, note.to_string()).about(plugin))
        }
        Note::Unanswered { plugin, .. } | Note::KeptInChain { plugin, .. } => {
            Some(Condition::degraded(Reason::PluginUnanswered, note.to_string()).about(plugin))
        }
        Note::LeftBehind { another, first, .. } => {
            let severity = left_behind(*another, *first && !are_published(state_dir))?;
            Some(severity(Reason::RuntimeConfigurationLeft, note.to_string()).about(vcn::CONFLIST_FILE))
        }
        Note::NoneThere { .. } => Some(Condition::blocking(Reason::RuntimeConfigurationMissing, note.to_string())),
        Note::Awaited { .. } if report.conflist == Conflist::Pending => {
            Some(Condition::blocking(Reason::Starting, note.to_string()))
        }
        _ => None,
    });
    report.failures.iter().map(condition).chain(noted).collect()
}

/// How bad a configuration before ours is whose plugins are there. What calls others' networks may call ours, or one that sorts
/// before it.
fn preceded(gives: Gives, taken: Taken) -> Option<fn(Reason, String) -> Condition> {
    match (gives, taken) {
        (Gives::Others | Gives::Unknown, _) => None,
        (Gives::Nothing, Taken::First | Taken::Next) => Some(Condition::blocking),
        (Gives::Network, _) | (Gives::Nothing, Taken::Never) => Some(Condition::degraded),
    }
}

/// How bad our configuration is on a node that is not ours. As long as nothing says whose the node is, one that pods start by
/// is as it should be.
fn left_behind(another: bool, stops_pods: bool) -> Option<fn(Reason, String) -> Condition> {
    match (another, stops_pods) {
        (_, true) => Some(Condition::blocking),
        (true, false) => Some(Condition::degraded),
        (false, false) => None,
    }
}

/// Whether addresses of this boot are published: then pods start by our configuration, although nobody looks after them.
fn are_published(state_dir: &Path) -> bool {
    let pools = BootId::current().and_then(|boot| Pools::read(state_dir, &boot));
    pools.is_ok_and(|pools| Usage::offers_any(&pools))
}
