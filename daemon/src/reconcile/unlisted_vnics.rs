//! The stage that reports VNICs, and families of VNICs, that are kept although the metadata service no longer lists them, and
//! finds out which of these VNICs still carry packets.

use datapath::host::HostVnic;
use vcn::{Family, Ocid};

use super::context::Context;
use super::{Stage, StageReport};
use crate::report::condition::{Condition, Reason};
use crate::sources::routers::Routers;

/// The stage.
#[derive(Debug)]
pub(super) struct UnlistedVnics {
    routers: Routers,
}

impl UnlistedVnics {
    /// `answered` is called when a router's answer changed.
    pub(super) fn new(answered: impl Fn() + Send + Sync + 'static) -> Self {
        Self { routers: Routers::new(answered) }
    }
}

impl Stage for UnlistedVnics {
    fn run(&mut self, context: &Context<'_>) -> StageReport {
        let facts = context.facts;
        let is_held = |host: &&HostVnic| facts.held().any(|held| *held == host.vnic.id);
        let held: Vec<&HostVnic> = context.vnics().iter().filter(is_held).collect();
        let silent = self.routers.silent(&held);
        let unlisted = facts.held().map(|vnic| unlisted(vnic, &silent));
        let families = facts.held_families().filter(|(_, family)| *family == Family::Ipv4 || context.has_ipv6);
        let conditions = unlisted.chain(families.map(|(vnic, family)| unlisted_family(vnic, *family))).collect();
        StageReport { conditions, silent, ..StageReport::default() }
    }
}

fn unlisted(vnic: &Ocid, silent: &[Ocid]) -> Condition {
    let message = if silent.contains(vnic) {
        "the metadata service no longer lists it, and its subnet's router does not answer on its link: no new pod gets its \
         addresses. The network of running pods stays, because the NativePodNetwork still names the VNIC"
    } else {
        "the metadata service no longer lists it; it is kept, because its device is still here or the NativePodNetwork still \
         names it"
    };
    Condition::degraded(Reason::VnicNotListed, message).about(vnic)
}

fn unlisted_family(vnic: &Ocid, family: Family) -> Condition {
    let message = format!(
        "the metadata service lists it without {family} addresses; the agent uses the last known ones, because the \
         NativePodNetwork has {family} addresses of it for pods"
    );
    Condition::degraded(Reason::VnicFamilyNotListed, message).about(vnic)
}
