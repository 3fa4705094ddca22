//! Whether pods hold every address. Plugins give addresses out without the agent, so each record of a run is a reason to
//! look again; a pass follows when the answer is another.

use std::path::{Path, PathBuf};

use ipam::{BootId, Pools, Store};
use vcn::Family;

use crate::decide::usage::size;
use crate::report::condition::{Condition, Reason};
use crate::report::reconcile_report::Cause;

/// The stage, and what it reported last.
#[derive(Debug)]
pub(super) struct Exhausted {
    state_dir: PathBuf,
    boot: BootId,
    reported: bool,
}

impl Exhausted {
    pub(super) fn new(state_dir: &Path, boot: BootId) -> Self {
        Self { state_dir: state_dir.to_owned(), boot, reported: false }
    }

    /// The condition, as the files are now. Files that cannot be read are other stages' to report.
    pub(super) fn stage(&mut self, cause: Cause) -> Option<Condition> {
        let condition = self.look();
        if cause != Cause::Preview {
            self.reported = condition.is_some();
        }
        condition
    }

    /// Nothing is reported of a node whose pod network is another.
    pub(super) const fn rest(&mut self) {
        self.reported = false;
    }

    /// Whether a pass would report something else than the last one did. `ours` is whether the pod network is.
    pub(super) fn has_changed(&self, ours: bool) -> bool {
        ours && self.look().is_some() != self.reported
    }

    fn look(&self) -> Option<Condition> {
        let pools = Pools::read(&self.state_dir, &self.boot).ok()?;
        let held = Store::new(&self.state_dir, self.boot.clone()).held().ok()?;
        if !pools.are_exhausted(&held) {
            return None;
        }
        let count = |family: &Family| {
            let pools = || pools.for_pods().filter_map(|vnic| vnic.families.of(*family));
            let total = pools().map(size).fold(0, u64::saturating_add);
            let held = held.iter().filter(|address| pools().any(|pool| pool.contains(**address))).count();
            format!("{family}: {held} of {total}")
        };
        let counts: Vec<String> = pools.families().iter().map(count).collect();
        let mut message =
            format!("no VNIC has a free address of each family that pods get; held: {}", counts.join(", "));
        if let Some(reason) = &pools.reason {
            message = format!("{message}; {reason}");
        }
        Some(Condition::blocking(Reason::AddressesExhausted, message))
    }
}
