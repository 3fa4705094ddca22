//! What VNICs offer to pods that request them by name: the entries of pools.json for `vnic-attach`. Pure.

use std::net::IpAddr;

use datapath::host::{HostVnic, Placement};
use ipam::{AttachOffer, BootId, BootTime, FamilyPool, Pools, VnicPool};
use ipnetwork::IpNetwork;
use vcn::{Family, IfName, LinkKindName, PerFamily, Purpose, SubnetAddressing, Vnic};

use crate::decide::exclusive::{self, ExclusiveVnic};
use crate::decide::pools::ConfiguredVnics;
use crate::decide::requests::{Requests, VnicRequest};
use crate::facts::node_facts::NodeFacts;
use crate::facts::refused;

/// The entries, given the host and the present file. While nothing is known of VnicAttachments, those of the file stay whose
/// VNICs are still listed.
pub(crate) fn offers(
    facts: &NodeFacts,
    requests: &Requests,
    hosted: ConfiguredVnics<'_>,
    exclusive: &[ExclusiveVnic],
    current: Option<&Pools>,
) -> Vec<VnicPool> {
    let published = || current.into_iter().flat_map(|pools| &pools.vnics).filter(|pool| pool.attach.is_some());
    let listed = |pool: &&VnicPool| facts.vnics().iter().find(|vnic| vnic.id == pool.vnic_id);
    if facts.attachments.value.is_none() {
        return published().filter(|pool| listed(pool).is_some()).cloned().collect();
    }
    let offer = |(id, request): (&vcn::Ocid, &VnicRequest)| {
        let vnic = facts.vnics().iter().find(|vnic| vnic.id == *id)?;
        if let Some(own) = exclusive::find(exclusive, id) {
            // Its link is not on the host while a pod has it.
            let before = || published().find(|pool| pool.vnic_id == *id).map(|pool| pool.link.clone());
            let link = own.link.clone().or_else(|| before().filter(|_| own.is_in_pod))?;
            return Some(for_one_pod(own, link, request, hosted.nics));
        }
        let host = hosted.vnics.iter().find(|host| host.vnic.id == *id).filter(|_| request.is_shared())?;
        Some(shared(vnic, host, request, facts.vnics(), hosted.nics))
    };
    requests.iter().filter_map(offer).collect()
}

/// The file of a node whose pod network is another program's: the entries for `vnic-attach` are the agent's all the same, and the
/// others stay as they are. `None` if nothing is to be published.
pub(crate) fn alone(offers: Vec<VnicPool>, current: Option<&Pools>, boot: &BootId, now: BootTime) -> Option<Pools> {
    let pools = current.map_or(&[][..], |pools| &pools.vnics);
    if offers.is_empty() && pools.iter().all(|pool| pool.attach.is_none()) {
        return None;
    }
    let rest = pools.iter().filter(|pool| pool.attach.is_none()).cloned();
    let mut next =
        Pools::new(boot.clone(), rest.chain(offers).collect(), current.and_then(|pools| pools.reason.clone()));
    if let Some(current) = current {
        next.extra.clone_from(&current.extra);
        next.pod_families.clone_from(&current.pod_families);
    }
    Some(next.following(current, now))
}

fn shared(vnic: &Vnic, host: &HostVnic, request: &VnicRequest, vnics: &[Vnic], nics: &LinkKindName) -> VnicPool {
    let link_kind = match &host.placement {
        Placement::Vlan { .. } => LinkKindName::vlan(),
        Placement::Device { .. } => nics.clone(),
    };
    let mut families = PerFamily::default();
    for (family, at) in host.vnic.addressing.iter() {
        // Of IPv4 the metadata service lists the VNIC's own address alone.
        let addresses: Vec<IpAddr> = match family {
            Family::Ipv4 => request.pod_addresses.clone(),
            Family::Ipv6 => {
                let listed = vnic.addressing.ipv6.iter().flat_map(SubnetAddressing::listed);
                listed.filter(|address| *address != at.address).collect()
            }
        };
        let blocks: Vec<IpNetwork> = addresses.into_iter().map(IpNetwork::from).collect();
        let addresses = refused::still_usable(&vnic.id, family, vnics, &blocks);
        *families.slot(family) = Some(FamilyPool { router: at.router, reserved: vec![at.address], addresses });
    }
    VnicPool {
        vnic_id: vnic.id.clone(),
        link: host.placement.link().clone(),
        mac: vnic.mac,
        link_has_mac: host.link_has_mac(),
        mtu: request.mtu,
        table: host.table,
        purpose: Purpose::Attach,
        attach: Some(AttachOffer { link_kind, ..offer(&host.vnic, request) }),
        families,
    }
}

fn for_one_pod(own: &ExclusiveVnic, link: IfName, request: &VnicRequest, nics: &LinkKindName) -> VnicPool {
    let mut families = PerFamily::default();
    for (family, at) in own.vnic.addressing.iter() {
        let addresses = vec![IpNetwork::from(at.address)];
        *families.slot(family) = Some(FamilyPool { router: at.router, reserved: Vec::new(), addresses });
    }
    VnicPool {
        vnic_id: own.vnic.id.clone(),
        link,
        mac: own.vnic.mac,
        // A physical port may have an address of its own.
        link_has_mac: own.vnic.nic_index.is_none(),
        mtu: request.mtu,
        table: own.table,
        purpose: Purpose::Attach,
        attach: Some(AttachOffer { vlan: own.vlan, link_kind: nics.clone(), ..offer(&own.vnic, request) }),
        families,
    }
}

fn offer(vnic: &Vnic, request: &VnicRequest) -> AttachOffer {
    let mut subnets = PerFamily::default();
    for (family, at) in vnic.addressing.iter() {
        *subnets.slot(family) = Some(at.subnet);
    }
    AttachOffer { subnets, ..request.offer.clone() }
}

#[cfg(test)]
mod tests {
    use resident::watch_activity::WatchActivity;
    use serde_json::json;
    use vcn::{Mtu, TableId};

    use super::*;
    use crate::decide::requests::requests;
    use crate::decide::requests::tests::{attachment, facts};
    use crate::facts::node_facts::KnownAttachments;

    #[test]
    fn entry_of_a_shared_vnic_stays_while_nothing_is_known_of_vnic_attachments() {
        let spec = json!({ "purpose": "Attach", "mtu": 1500, "allowedNamespaces": ["backup"], "ipv4Count": 2,
            "routes": [{ "destination": "172.16.0.0/12" }] });
        let mut facts = facts(attachment(&spec, &json!({ "podAddresses": ["10.0.64.8", "10.0.64.9"] })));
        let placement = Placement::Device { link: "ens6".parse().unwrap() };
        let (vnic, table) = (facts.vnics()[2].clone(), TableId(1001));
        let host = HostVnic {
            vnic,
            placement,
            table,
            mtu: Mtu(1500),
            pod_blocks: Vec::new(),
            on_link: Vec::new(),
            routes: Vec::new(),
        };
        let offered = |facts: &NodeFacts, current: Option<&Pools>| {
            let (vnics, nics) = (std::slice::from_ref(&host), &LinkKindName::HARDWARE);
            let hosted = ConfiguredVnics { vnics, ipv6: true, nics };
            offers(facts, &requests(facts), hosted, &[], current)
        };
        let before = Pools::new(BootId::from_text("a"), offered(&facts, None), None);
        let expected = json!([{
            "vnicId": "ocid1.vnic.oc1.iad.storage", "link": "ens6", "mac": "02:00:17:00:00:0c", "linkHasMac": true,
            "mtu": 1500, "table": 1001, "purpose": "attach",
            "attach": { "name": "storage", "mode": "Shared", "allowedNamespaces": ["backup"],
                "subnets": { "ipv4": "10.0.64.0/24" }, "routes": [{ "destination": "172.16.0.0/12" }] },
            "ipv4": { "router": "10.0.64.1", "reserved": ["10.0.64.7"], "addresses": ["10.0.64.8/32", "10.0.64.9/32"] },
        }]);
        assert_eq!(serde_json::to_value(&before.vnics).unwrap(), expected);
        facts.attachments = KnownAttachments::default();
        assert_eq!(offered(&facts, Some(&before)), before.vnics);
        facts.attachments.watched(Vec::new(), WatchActivity::begin());
        assert_eq!(offered(&facts, Some(&before)), []);
        let withdrawn = alone(Vec::new(), Some(&before), &BootId::from_text("a"), BootTime(1)).unwrap();
        assert_eq!(withdrawn.vnics, [], "also on a node with another pod network");
    }

    #[test]
    fn nothing_is_published_where_nothing_was_offered() {
        assert_eq!(alone(Vec::new(), None, &BootId::from_text("a"), BootTime(1)), None);
    }
}
