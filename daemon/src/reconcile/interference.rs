//! Other programs that change the network of this host: detected and reported, never fought.
//!
//! ```text
//!   host files (/etc, /run, /usr/lib) ─▶ checks ─┬─▶ conditions
//!   addresses, rules, nft chains ──────▶ kernel ─┘
//! ```

mod checks;
mod kernel;

use std::path::{Path, PathBuf};

use datapath::host::{HostNetwork, HostVnic};
use netlink::Link;

use crate::report::condition::Condition;
use crate::report::reconcile_report::Cause;

/// What the last full check found. A reconcile of cause kernel repeats it.
#[derive(Debug)]
pub(crate) struct Interference {
    /// The host's file system, as mounted here.
    root: PathBuf,
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
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), found: Vec::new(), forward_filter: kernel::ForwardFilter::default() }
    }

    /// Checks for interference.
    pub(crate) fn check(&mut self, host: HostView<'_>, cause: Cause) -> Vec<Condition> {
        if cause == Cause::Kernel {
            return self.found.clone();
        }
        let mut found = self.forward_filter.check(host.network);
        found.extend(kernel::conflicts(host));
        found.extend(checks::run(&self.root, host));
        if cause != Cause::Preview {
            self.found.clone_from(&found);
        }
        found
    }
}

impl HostView<'_> {
    /// The index of a VNIC's link.
    fn index_of(&self, vnic: &HostVnic) -> Option<u32> {
        self.links.iter().find(|link| link.name == *vnic.placement.link()).map(|link| link.index)
    }
}
