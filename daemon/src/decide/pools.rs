//! The addresses that pods may get: the desired content of pools.json. Pure.
//!
//! A source that does not answer removes no pool. Only a finished NativePodNetwork replaces the VNICs in the file; until then
//! those of this boot that are still configured stay, with a reason.

#[cfg(test)]
mod tests;

use api::NativePodNetwork;
use api::npn::{NpnAddressing, NpnState, NpnVnic};
use datapath::host::HostVnic;
use ipam::{BootId, BootTime, FamilyPool, Pools, VnicPool};
use vcn::{Family, LinkKindName, Ocid, PerFamily, Purpose, Vnic};

use crate::facts::condition::{Condition, Reason};
use crate::facts::node_facts::{NodeFacts, npn_vnic};
use crate::facts::refused;

/// What the host has for pods' packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConfiguredVnics<'a> {
    /// The VNICs whose configuration is in sync.
    pub vnics: &'a [HostVnic],
    /// Whether the kernel has IPv6; if not, IPv6 addresses are ignored.
    pub ipv6: bool,
    /// The kind of links of VNICs.
    pub nics: &'a LinkKindName,
}

/// When the file is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteTime<'a> {
    pub boot: &'a BootId,
    /// The time since it.
    pub now: BootTime,
}

/// The pools, given the host and the present file; without what is offered to pods that request a VNIC by name.
pub(crate) fn next(
    facts: &NodeFacts,
    hosted: ConfiguredVnics<'_>,
    current: Option<&Pools>,
    moment: WriteTime<'_>,
    troubles: &[Condition],
) -> (Pools, Vec<Condition>) {
    let mut conditions = Vec::new();
    let finished = facts.npn().filter(|npn| npn.usable());
    let mut vnics: Vec<VnicPool> = match finished {
        Some(npn) => npn.vnics.iter().filter_map(|vnic| pool(vnic, hosted, &mut conditions)).collect(),
        None => current.map(|pools| kept(pools, hosted, facts.vnics())).unwrap_or_default(),
    };
    vnics.retain(|pool| unlisted_serves_new_pods(&pool.vnic_id, facts, hosted.vnics) != Some(false));
    let mut why: Vec<String> = pending(facts).map(|(_, why)| why).into_iter().collect();
    if let Some(npn) = finished {
        let about_pods = |condition: &&Condition| npn.vnics.iter().any(|vnic| concerns(condition, vnic));
        why.extend(troubles.iter().chain(&conditions).filter(about_pods).map(ToString::to_string));
    }
    let mut pools = Pools::new(moment.boot.clone(), vnics, (!why.is_empty()).then(|| why.join("; ")));
    if let Some(current) = current {
        pools.extra.clone_from(&current.extra);
    }
    pools.pod_families = match finished {
        Some(npn) => Some(families(npn, hosted.ipv6)),
        None => current.and_then(|pools| pools.pod_families.clone()),
    };
    (pools.following(current, moment.now), conditions)
}

/// Whether new pods get addresses of a bare-metal VNIC that the metadata service no longer lists: only while no listed VNIC
/// serves pods. If OCI detached it, its link stays and its packets vanish, and it would get most of the new pods, as the least
/// used VNIC. `None` for any other VNIC: a virtual machine loses the device with the VNIC.
pub(crate) fn unlisted_serves_new_pods(id: &Ocid, facts: &NodeFacts, hosted: &[HostVnic]) -> Option<bool> {
    let is_held = |host: &HostVnic| facts.held().any(|held| *held == host.vnic.id);
    let serves_pods = |host: &&HostVnic| npn_vnic(facts.npn(), &host.vnic.id).is_some_and(NpnVnic::serves_all_pods);
    let mut of_pods = hosted.iter().filter(serves_pods);
    of_pods.clone().find(|host| host.vnic.id == *id && host.vnic.nic_index.is_some() && is_held(host))?;
    Some(of_pods.all(is_held))
}

/// The families of which OKE created addresses for pods: a VNIC that fails for a moment must not cause IPv4-only pods where all
/// others have both families.
fn families(npn: &NativePodNetwork, ipv6: bool) -> Vec<Family> {
    let made = |family: Family| {
        let has = |vnic: &&NpnVnic| vnic.addressing.of(family).is_some_and(|addressing| !addressing.pods.is_empty());
        npn.vnics.iter().filter(|vnic| vnic.serves_all_pods()).any(|vnic| has(&vnic))
    };
    Family::ALL.into_iter().filter(|&family| (family == Family::Ipv4 || ipv6) && made(family)).collect()
}

/// Why there are no addresses yet, or not the newest; `None` if OKE has finished.
pub(crate) fn pending(facts: &NodeFacts) -> Option<(Reason, String)> {
    if let Some(error) = &facts.npn.error {
        let why = format!("the NativePodNetwork cannot be read: {error}");
        return Some((Reason::NativePodNetworkUnreadable, why));
    }
    let why = match &facts.npn.value {
        None => "the NativePodNetwork has not been read yet".into(),
        Some(None) => "this instance has no NativePodNetwork (yet)".into(),
        Some(Some(npn)) if npn.usable() => return None,
        Some(Some(npn)) => state(npn),
    };
    Some((Reason::NativePodNetworkPending, why))
}

fn state(npn: &NativePodNetwork) -> String {
    match (&npn.state, &npn.reason) {
        (NpnState::Success, _) => "NativePodNetwork is SUCCESS without any VNIC".into(),
        (state, Some(reason)) => format!("NativePodNetwork is {state}: {reason}"),
        (state, None) => format!("NativePodNetwork is {state}"),
    }
}

fn concerns(condition: &Condition, vnic: &NpnVnic) -> bool {
    condition.subject.as_deref() == Some(vnic.vnic_id.as_str())
}

fn pool(vnic: &NpnVnic, hosted: ConfiguredVnics<'_>, conditions: &mut Vec<Condition>) -> Option<VnicPool> {
    let host = hosted.vnics.iter().find(|host| host.vnic.id == vnic.vnic_id)?;
    let mut families = PerFamily::default();
    let spoken = |family: Family| family == Family::Ipv4 || hosted.ipv6;
    let offered = vnic.addressing.iter().filter(|(family, addressing)| spoken(*family) && !addressing.pods.is_empty());
    for (family, addressing) in offered {
        match family_pool(family, addressing, host) {
            Some(pool) => *families.slot(family) = Some(pool),
            None => {
                let message = format!(
                    "neither the metadata service nor the NativePodNetwork says which router serves its {family} \
                     addresses"
                );
                conditions.push(Condition::degraded(Reason::RouterUnknown, message).about(&vnic.vnic_id));
            }
        }
    }
    Some(VnicPool {
        vnic_id: vnic.vnic_id.clone(),
        link: host.placement.link().clone(),
        mac: host.vnic.mac,
        link_has_mac: host.link_has_mac(),
        mtu: host.mtu,
        table: host.table,
        purpose: if vnic.serves_all_pods() { Purpose::Pods } else { Purpose::Attach },
        attach: None,
        families,
    })
}

/// `None` if the VNIC's table has no routes of the family: a pod's packets could not leave.
fn family_pool(family: Family, npn: &NpnAddressing, host: &HostVnic) -> Option<FamilyPool> {
    let on_host = host.vnic.addressing.of(family)?;
    let mut reserved = vec![on_host.address];
    reserved.extend(npn.host.filter(|address| *address != on_host.address));
    // The table leads to the host's router, whatever the NativePodNetwork says.
    Some(FamilyPool { router: on_host.router, reserved, addresses: npn.pods.clone() })
}

/// The VNICs of the file that are still configured, with their present links and tables, less addresses that are refused now.
fn kept(pools: &Pools, hosted: ConfiguredVnics<'_>, vnics: &[Vnic]) -> Vec<VnicPool> {
    let now = |pool: &VnicPool| {
        let host = hosted.vnics.iter().find(|host| host.vnic.id == pool.vnic_id)?;
        let (link, table) = (host.placement.link().clone(), host.table);
        let (mac, link_has_mac) = (host.vnic.mac, host.link_has_mac());
        let mut pool = pool.clone();
        for family in Family::ALL {
            if let Some(offered) = pool.families.slot(family) {
                offered.addresses = refused::still_usable(&pool.vnic_id, family, vnics, &offered.addresses);
            }
        }
        Some(VnicPool { link, table, mac, link_has_mac, mtu: host.mtu, ..pool })
    };
    pools.vnics.iter().filter(|pool| pool.attach.is_none()).filter_map(now).collect()
}
