//! Restarts a unit. The proof is another invocation of it that stays active.

use std::time::{Duration, Instant};

use api::TaskReason;
use api::operation::OperationReport;
use systemd::{Systemd, Unit, UnitState};
use tokio::time::sleep;

use super::Failure;

/// How long the same invocation must be active.
const PROOF: Duration = Duration::from_secs(10);
/// Until then, the proof must have begun and ended: a unit may need some attempts, with its RestartSec between them.
const LIMIT: Duration = Duration::from_secs(60);
/// Between two reads of the state.
const POLL: Duration = Duration::from_millis(500);

/// Restarts a unit that runs, or failed, and waits for the proof.
pub(super) async fn restart(systemd: &Systemd, name: &str) -> Result<OperationReport, Failure> {
    let before = systemd.unit(name).await?;
    refuse(name, &before)?;
    let start = Instant::now();
    systemd.restart(name).await?;
    let mut proof = Proof::new(before.invocation);
    loop {
        // A unit of the bus's own may be restarted with it: the next read shows more.
        let last = systemd.unit(name).await?;
        if proof.is_complete(&last, start.elapsed()) {
            let message = format!("{name} has been active for {} s: invocation {}", PROOF.as_secs(), last.invocation);
            return Ok(OperationReport::new(TaskReason::Succeeded, &message));
        }
        if start.elapsed() > LIMIT {
            let message = format!("{name} is {last}, {} s after its restart", LIMIT.as_secs());
            return Err(Failure { reason: TaskReason::UnitNotActive, message });
        }
        sleep(POLL).await;
    }
}

/// A runtime that is installed but not used must not start.
fn refuse(name: &str, unit: &Unit) -> Result<(), Failure> {
    let message = if !unit.is_loaded {
        format!("this node does not have the unit {name}, or the unit is masked")
    } else if unit.active == UnitState::Inactive && unit.invocation.is_empty() {
        format!("{name} has not run since this node booted: the node does not use it")
    } else {
        return Ok(());
    };
    Err(Failure { reason: TaskReason::UnitNotFound, message })
}

/// Follows the states after a restart.
pub(super) struct Proof {
    /// The last invocation: the one before the restart at first.
    invocation: String,
    /// The invocations since then.
    pub(super) starts: usize,
    /// When the last one was seen active, and stayed so, since the restart.
    active_since: Option<Duration>,
}

impl Proof {
    pub(super) const fn new(before: String) -> Self {
        Self { invocation: before, starts: 0, active_since: None }
    }

    /// Whether the unit was active all the time, in one invocation that began after the restart.
    pub(super) fn is_complete(&mut self, unit: &Unit, elapsed: Duration) -> bool {
        if !unit.invocation.is_empty() && unit.invocation != self.invocation {
            self.invocation.clone_from(&unit.invocation);
            self.starts += 1;
            self.active_since = None;
        }
        let is_active = unit.active == UnitState::Active && !unit.has_job;
        if !is_active || unit.invocation.is_empty() || self.starts == 0 {
            self.active_since = None;
            return false;
        }
        elapsed.saturating_sub(*self.active_since.get_or_insert(elapsed)) >= PROOF
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(active: UnitState, invocation: &str) -> Unit {
        Unit { is_loaded: true, active, sub: "running".to_owned(), invocation: invocation.to_owned(), has_job: false }
    }

    fn seconds(proof: &mut Proof, states: &[(u64, UnitState, &str)]) -> Option<u64> {
        let complete = |(second, active, invocation): &&(u64, UnitState, &str)| {
            proof.is_complete(&unit(*active, invocation), Duration::from_secs(*second))
        };
        states.iter().find(complete).map(|(second, ..)| *second)
    }

    #[test]
    fn proof_needs_one_new_invocation_for_ten_seconds() {
        use UnitState::{Active, Changing};
        let proof = || Proof::new("old".to_owned());
        assert_eq!(seconds(&mut proof(), &[(0, Active, "old"), (60, Active, "old")]), None);
        assert_eq!(seconds(&mut proof(), &[(1, Active, "new"), (10, Active, "new"), (11, Active, "new")]), Some(11));
        // A unit that crashes and is started again begins from the start, whether that was seen or not.
        let crashes = [(1, Active, "new"), (9, Active, "newer"), (12, Active, "newer"), (19, Active, "newer")];
        assert_eq!(seconds(&mut proof(), &crashes), Some(19));
        let seen = [(1, Active, "new"), (5, Changing, "new"), (6, Active, "newer"), (15, Active, "newer")];
        assert_eq!(seconds(&mut proof(), &seen), None);
        // A reload interrupts the ten seconds, and is not another start.
        let reloads =
            [(1, Active, "new"), (5, Changing, "new"), (6, Active, "new"), (15, Active, "new"), (16, Active, "new")];
        assert_eq!(seconds(&mut proof(), &reloads), Some(16));
    }

    #[test]
    fn active_unit_with_a_queued_job_is_not_proven() {
        let mut proof = Proof::new(String::new());
        let queued = Unit { has_job: true, ..unit(UnitState::Active, "new") };
        assert!(!proof.is_complete(&queued, Duration::ZERO) && !proof.is_complete(&queued, PROOF));
    }

    #[test]
    fn unused_and_missing_units_are_refused_and_failed_ones_are_not() {
        let unused = refuse("crio.service", &unit(UnitState::Inactive, "")).unwrap_err();
        assert!(unused.message.contains("does not use it"), "{unused:?}");
        let missing = Unit { is_loaded: false, ..unit(UnitState::Inactive, "") };
        assert_eq!(refuse("crio.service", &missing).unwrap_err().reason, TaskReason::UnitNotFound);
        refuse("crio.service", &unit(UnitState::Failed, "old")).unwrap();
        refuse("chronyd.service", &unit(UnitState::Inactive, "old")).unwrap();
    }
}
