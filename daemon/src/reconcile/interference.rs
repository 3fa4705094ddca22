//! Other programs that change the network of this host: detected and reported, never fought. The agent writes only drop-ins
//! that make network managers leave our links, routes and rules alone, and only where the operator allows it.
//!
//! ```text
//!   host files (/etc, /run, /usr/lib) ─▶ checks ───┐
//!   addresses, rules, nft chains ──────▶ kernel ───┼─▶ conditions
//!   HOST_DROP_INS ─────────────────────▶ drop_ins ─┴─▶ files, changes
//! ```

mod checks;
mod drop_ins;
mod kernel;

use std::path::{Path, PathBuf};

use datapath::host::{HostNetwork, HostVnic};
use netlink::Link;

use crate::report::condition::{Condition, Reason};
use crate::report::reconcile_report::{Cause, Changed};

/// What the last full check found. A reconcile of cause kernel repeats it.
#[derive(Debug)]
pub(crate) struct Interference {
    /// The host's file system, as mounted here.
    root: PathBuf,
    /// Holds the record of written drop-ins.
    data_dir: PathBuf,
    may_write: bool,
    found: Vec<Condition>,
    forward_filter: kernel::ForwardFilter,
}

/// The host's network: desired VNICs and observed links.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostView<'a> {
    pub(crate) network: &'a HostNetwork,
    pub(crate) links: &'a [Link],
}

impl Interference {
    pub(crate) fn new(root: &Path, data_dir: &Path, may_write: bool) -> Self {
        Self {
            root: root.to_owned(),
            data_dir: data_dir.to_owned(),
            may_write,
            found: Vec::new(),
            forward_filter: kernel::ForwardFilter::default(),
        }
    }

    /// Checks for interference and reconciles the drop-ins. A preview changes nothing.
    pub(crate) fn check(&mut self, host: HostView<'_>, cause: Cause) -> (Vec<Condition>, Vec<Changed>) {
        if cause == Cause::Kernel {
            return (self.found.clone(), Vec::new());
        }
        let mut found = self.forward_filter.check(host.network);
        found.extend(kernel::conflicts(host));
        // Before drop-ins are written: programs act by what they read when they started.
        found.extend(checks::run(&self.root, host));
        let mut changes = Vec::new();
        match self.drop_in_steps(host) {
            Err(error) => found.push(drop_in_failed(&error, "drop-ins")),
            Ok(steps) => {
                for step in steps {
                    let done = if cause == Cause::Preview { Ok(true) } else { step.apply(&self.root, &self.data_dir) };
                    match done {
                        Ok(true) => changes.push(Changed::new("drop-in", &step)),
                        Ok(false) => {}
                        Err(error) => found.push(drop_in_failed(&error, step.path())),
                    }
                }
            }
        }
        if cause != Cause::Preview {
            self.found.clone_from(&found);
        }
        (found, changes)
    }

    fn drop_in_steps(&self, host: HostView<'_>) -> anyhow::Result<Vec<drop_ins::Step>> {
        if !self.may_write {
            return drop_ins::removals(&self.root, &self.data_dir);
        }
        let mut wanted = Vec::new();
        if checks::is_running(&self.root, checks::NETWORKD) {
            wanted.extend(drop_ins::networkd(&host.network.vnics));
        }
        if checks::is_running(&self.root, checks::NETWORK_MANAGER) {
            wanted.push(drop_ins::network_manager(&host.network.vnics));
        }
        wanted.retain(|drop_in| !drop_in.is_in_place(&self.root));
        Ok(wanted.into_iter().map(drop_ins::Step::Write).collect())
    }
}

impl HostView<'_> {
    /// The index of a VNIC's link.
    fn index_of(&self, vnic: &HostVnic) -> Option<u32> {
        self.links.iter().find(|link| link.name == *vnic.placement.link()).map(|link| link.index)
    }
}

fn drop_in_failed(error: &anyhow::Error, path: &str) -> Condition {
    Condition::degraded(Reason::DropInFailed, format!("{error:#}")).about(path)
}
