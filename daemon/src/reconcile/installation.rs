//! The installer's stage: when to run it, and its report in our words.

use installer::{Conflist, Report, Signals};

use super::Findings;
use crate::condition::{Condition, Reason};
use crate::logging::chain;
use crate::pass::{Cause, Changed, PodNetworkState};
use crate::settings::Settings;
use crate::world::World;

/// What the installer was last asked and said. It reads binaries of some MiB, so it is not asked at every kernel event.
#[derive(Debug, Default)]
pub(super) struct Installation {
    last: Option<Last>,
}

#[derive(Debug)]
struct Last {
    signals: Signals,
    usable: bool,
    state: PodNetworkState,
    conditions: Vec<Condition>,
}

impl Installation {
    /// Whether the pod network of this node is ours. Asked first: where it is not, nothing is touched that pods live by.
    pub(super) fn is_ours(&self, settings: &Settings, world: &World, cause: Cause) -> bool {
        let signals = world.signals(&settings.signals);
        match &self.last {
            Some(last) if cause == Cause::Kernel && last.signals == signals => last.state.install,
            _ => installer::decision(&settings.installer, &signals).install,
        }
    }

    /// Brings binaries and configuration into place where they belong.
    pub(super) fn stage(
        &mut self,
        settings: &Settings,
        world: &World,
        (usable, cause): (bool, Cause),
        findings: &mut Findings,
    ) -> PodNetworkState {
        let signals = world.signals(&settings.signals);
        if let Some(last) = &self.last
            && cause == Cause::Kernel
            && last.signals == signals
            && last.usable == usable
        {
            findings.conditions.extend(last.conditions.iter().cloned());
            return last.state.clone();
        }
        let report = match cause {
            Cause::Preview => installer::dry_run(&settings.installer, &signals, usable),
            _ => installer::reconcile(&settings.installer, &signals, usable),
        };
        findings.changes.extend(report.steps.iter().map(|step| Changed::new("cni", step)));
        let conditions = conditions(&report);
        findings.conditions.extend(conditions.iter().cloned());
        let state = PodNetworkState {
            install: report.decision.install,
            decided_by: report.decision.decided_by.to_string(),
            reason: report.decision.reason.clone(),
            status: report.status().to_string(),
            notes: report.notes.iter().map(ToString::to_string).collect(),
        };
        if cause != Cause::Preview {
            self.last = Some(Last { signals, usable, state: state.clone(), conditions });
        }
        state
    }
}

/// A failure stops new pods unless the configuration is there, which follows the binaries.
fn conditions(report: &Report) -> Vec<Condition> {
    let condition = |error: &installer::Error| {
        let (reason, message) = (Reason::InstallerFailed, chain(error));
        let condition = match report.conflist {
            Conflist::InPlace | Conflist::NotWanted => Condition::degraded(reason, message),
            Conflist::Waiting | Conflist::Pending => Condition::blocking(reason, message),
        };
        condition.about(error.word())
    };
    report.failures.iter().map(condition).collect()
}
