//! VNICs that one pod at a time has. Pure. The host configures nothing of them: on a virtual machine the link itself goes into
//! the pod, on bare metal the pod gets a VLAN link on the physical port.

use datapath::host::Placement;
use vcn::{IfName, Ocid, SubnetAddressing, TableId, VlanTag, Vnic};

use crate::decide::host_facts::HostFacts;
use crate::facts::condition::{Condition, Reason};

/// A VNIC for one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExclusiveVnic {
    /// As the metadata service lists it, with the own address of each family.
    pub vnic: Vnic,
    /// Its routing table, which stays empty on the host.
    pub table: TableId,
    /// The host link: the VNIC's, or the physical port; none while a pod has it.
    pub link: Option<IfName>,
    /// The tag of the VLAN link that the pod gets.
    pub vlan: Option<VlanTag>,
    pub is_in_pod: bool,
}

impl ExclusiveVnic {
    /// The VNIC, by what was found of it on the host; a condition if it is neither there nor in a pod.
    pub(super) fn of(
        vnic: &Vnic,
        placement: Result<Placement, String>,
        table: TableId,
        facts: HostFacts<'_>,
    ) -> (Self, Option<Condition>) {
        let mut vnic = vnic.clone();
        if !facts.ipv6 {
            vnic.addressing.ipv6 = None;
        }
        if let Some(at) = &mut vnic.addressing.ipv6 {
            let own = facts.requests.get(&vnic.id).and_then(|request| request.own(vcn::Family::Ipv6));
            at.address = own.filter(|own| at.listed().any(|listed| listed == *own)).unwrap_or(at.address);
        }
        let is_held = |at: &SubnetAddressing| facts.held.contains(&at.address);
        let is_in_pod = vnic.addressing.iter().any(|(_, at)| is_held(at));
        let (link, vlan, error) = match placement {
            Ok(Placement::Device { link }) => (Some(link), None, None),
            Ok(Placement::Vlan { parent, tag, .. }) => (Some(parent), Some(tag), None),
            Err(error) => (None, None, Some(error)),
        };
        let missing = |error: String| Condition::degraded(Reason::LinkMissing, error).about(&vnic.id);
        let condition = error.filter(|_| !is_in_pod).map(missing);
        (Self { vnic, table, link, vlan, is_in_pod }, condition)
    }
}

pub(crate) fn find<'a>(exclusive: &'a [ExclusiveVnic], id: &Ocid) -> Option<&'a ExclusiveVnic> {
    exclusive.iter().find(|it| it.vnic.id == *id)
}
