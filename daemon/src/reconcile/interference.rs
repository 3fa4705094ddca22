//! Who else on this host configures what pods live by, and what to do about it. Looked at, never fought: what is ours is
//! repaired anyway, and what is theirs is theirs. The one thing written, where the operator allows it, are drop-ins that make
//! network managers leave our links, routes and rules alone.
//!
//! ```text
//!   kernel: nft chains, addresses, rules ─┬─▶ firewall   a chain that stops what is forwarded
//!                                         └─▶ twice      somebody else configures the same VNIC
//!   host's files (/etc, /run, /usr/lib) ──┬─▶ networkd   removes foreign rules and routes
//!                                         ├─▶ network_manager   manages a VNIC's link
//!                                         └─▶ ocid       configures VNICs every minute
//! ```

mod drop_ins;
mod firewall;
mod ini;
mod network_manager;
mod networkd;
mod ocid;
mod twice;
mod units;

use std::path::{Path, PathBuf};

use datapath::host::{HostNetwork, HostVnic};
use netlink::Link;

pub use drop_ins::{DropIn, DropInError};
use resident::logging::chain;

use crate::report::condition::{Condition, Reason};
use crate::report::reconcile_report::{Cause, Changed};

/// What is known of others, and what was found the last time: most of it is looked at by the timer only.
#[derive(Debug)]
pub(crate) struct Interference {
    /// The host's file system, as seen from here.
    root: PathBuf,
    /// Where what is written is noted.
    data_dir: PathBuf,
    /// Whether drop-ins may be written.
    may_write: bool,
    found: Vec<Condition>,
    firewalls: firewall::Firewalls,
}

/// The host, as far as others may meddle with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    /// What we want of it.
    pub(crate) network: &'a HostNetwork,
    /// Its links.
    pub(crate) links: &'a [Link],
}

impl Interference {
    pub(crate) fn new(root: &Path, data_dir: &Path, may_write: bool) -> Self {
        Self {
            root: root.to_owned(),
            data_dir: data_dir.to_owned(),
            may_write,
            found: Vec::new(),
            firewalls: firewall::Firewalls::default(),
        }
    }

    /// For whoever looks once, with nobody waiting but a person.
    pub(crate) const fn wait_as_a_person_does(&mut self) {
        self.firewalls.wait_as_a_person_does();
    }

    /// Whether drop-ins may be written from now on.
    pub(crate) const fn allow(&mut self, may_write: bool) {
        self.may_write = may_write;
    }

    /// What somebody should know, and what was written about it.
    pub(crate) fn look(&mut self, subject: Subject<'_>, cause: Cause) -> (Vec<Condition>, Vec<Changed>) {
        if cause == Cause::Kernel {
            return (self.found.clone(), Vec::new());
        }
        let mut found = self.firewalls.look(subject.network);
        found.extend(twice::look(subject));
        let (networkd, manager) = (networkd::look(&self.root, subject), network_manager::look(&self.root, subject));
        let mut wanted = Vec::new();
        if networkd.running {
            wanted.extend(drop_ins::networkd(&subject.network.vnics));
        }
        if manager.running {
            wanted.push(drop_ins::network_manager(&subject.network.vnics));
        }
        let mut changes = Vec::new();
        if self.may_write {
            for drop_in in wanted.iter().filter(|drop_in| !drop_in.is_in_place(&self.root)) {
                let written = if cause == Cause::Preview { Ok(()) } else { drop_in.write(&self.root, &self.data_dir) };
                match written {
                    Ok(()) => changes.push(Changed::new("drop-in", drop_in.to_string())),
                    Err(error) => {
                        found.push(Condition::degraded(Reason::DropInFailed, chain(&error)).about(drop_in.path));
                    }
                }
            }
        } else {
            self.take_back(cause, &mut found, &mut changes);
        }
        // Looked at before they were written: what is told is what the programs read when they started.
        found.extend(networkd.conditions.into_iter().chain(manager.conditions));
        found.extend(ocid::look(&self.root));
        if cause != Cause::Preview {
            self.found.clone_from(&found);
        }
        (found, changes)
    }
}

impl Interference {
    /// Removes what was written when it was allowed.
    fn take_back(&self, cause: Cause, found: &mut Vec<Condition>, changes: &mut Vec<Changed>) {
        let failed =
            |error: &DropInError, about: &str| Condition::degraded(Reason::DropInFailed, chain(error)).about(about);
        let left = match drop_ins::left_over(&self.root, &self.data_dir) {
            Ok(left) => left,
            Err(error) => return found.push(failed(&error, "drop-ins")),
        };
        for below in left {
            let removed = match cause {
                Cause::Preview => Ok(true),
                _ => drop_ins::remove(&self.root, &self.data_dir, &below),
            };
            match removed {
                Ok(true) => changes.push(Changed::new("drop-in", format!("remove /{below}"))),
                Ok(false) => {}
                Err(error) => found.push(failed(&error, &below)),
            }
        }
    }
}

/// What a program was found doing.
#[derive(Debug, Default)]
struct Found {
    running: bool,
    conditions: Vec<Condition>,
}

/// The index of a VNIC's link.
fn index_of(vnic: &HostVnic, links: &[Link]) -> Option<u32> {
    links.iter().find(|link| link.name == *vnic.placement.link()).map(|link| link.index)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use datapath::host::{Placement, PodServices};
    use vcn::{Mtu, TableId};

    use super::*;
    use crate::fixture;

    /// Repairs wait for a preview as for a pass. A thread may stand for seconds, so it is tried more than once.
    #[test]
    fn a_preview_of_an_agents_waits_for_the_firewall_no_longer_than_a_pass_does() {
        let folder = tempfile::tempdir().unwrap();
        let vnic = HostVnic {
            vnic: fixture::vnic("pods", 0x0b, "10.0.33"),
            placement: Placement::Device { link: "ens5".parse().unwrap() },
            table: TableId(1000),
            mtu: Mtu::VCN,
            pod_blocks: Vec::new(),
        };
        let pods = Some(PodServices { may_use_metadata: false, may_spoof: false, ipv6: false });
        let network = HostNetwork { primary: "ens3".parse().unwrap(), vnics: vec![vnic], pods };
        let took = || {
            let mut interference = Interference::new(folder.path(), folder.path(), false);
            let held = interference.firewalls.look_that_takes_for_ever();
            let begun = Instant::now();
            let (found, _) = interference.look(Subject { network: &network, links: &[] }, Cause::Preview);
            let took = begun.elapsed();
            drop(held);
            assert_eq!(found, []);
            took
        };
        let tries: Vec<_> = (0..3).map(|_| took()).collect();
        assert!(tries.iter().any(|took| *took < firewall::PATIENCE_OF_A_PERSON / 2), "{tries:?}");
    }
}
