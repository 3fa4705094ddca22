//! What VNICs offer to pods that request them by name: the entries of pools.json for `vnic-attach`. Pure.

use std::net::IpAddr;

use datapath::host::HostVnic;
use ipam::{AttachOffer, AttachRoute, BootId, BootTime, FamilyPool, Pools, VnicPool};
use ipnetwork::IpNetwork;
use vcn::{Family, IfName, PerFamily, Purpose, SubnetAddressing, VlanTag, Vnic};

use crate::decide::exclusive::{self, ExclusiveVnic};
use crate::decide::pools::ConfiguredVnics;
use crate::decide::refused;
use crate::decide::requests::{Requests, VnicRequest};
use crate::sources::node_facts::NodeFacts;

/// The entries, given the host and the present file. While nothing is known of VnicAttachments, those of the file stay whose
/// VNICs are still listed.
pub fn offers(
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
            return Some(for_one_pod(own, link, request));
        }
        let host = hosted.vnics.iter().find(|host| host.vnic.id == *id).filter(|_| request.is_shared())?;
        Some(shared(vnic, host, request, facts.vnics()))
    };
    requests.iter().filter_map(offer).collect()
}

/// The file of a node whose pod network is another program's: the entries for `vnic-attach` are the agent's all the same, and the
/// others stay as they are. `None` if nothing is to be published.
pub fn alone(offers: Vec<VnicPool>, current: Option<&Pools>, boot: &BootId, now: BootTime) -> Option<Pools> {
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

fn shared(vnic: &Vnic, host: &HostVnic, request: &VnicRequest, vnics: &[Vnic]) -> VnicPool {
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
        attach: Some(offer(&host.vnic, request, None)),
        families,
    }
}

fn for_one_pod(own: &ExclusiveVnic, link: IfName, request: &VnicRequest) -> VnicPool {
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
        attach: Some(offer(&own.vnic, request, own.vlan)),
        families,
    }
}

fn offer(vnic: &Vnic, request: &VnicRequest, vlan: Option<VlanTag>) -> AttachOffer {
    let mut subnets = PerFamily::default();
    for (family, at) in vnic.addressing.iter() {
        *subnets.slot(family) = Some(at.subnet);
    }
    let routes = request.routes.iter().map(|route| AttachRoute { destination: route.destination, via: route.via });
    AttachOffer {
        name: request.name.clone(),
        mode: request.mode,
        allowed_namespaces: request.allowed_namespaces.clone(),
        vlan,
        subnets,
        routes: routes.collect(),
        is_leaving: request.is_leaving,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Instant;

    use api::VnicAttachment;
    use netlink::Link;
    use serde_json::{Value, json};

    use super::*;
    use crate::decide::desired::{DesiredState, HostFacts, Policy, secondary, wanted};
    use crate::decide::devices::Devices;
    use crate::decide::requests::requests;
    use crate::decide::requests::tests::{attachment, facts};
    use crate::decide::slots::{Slots, TableReferences};
    use crate::fixture::link;
    use crate::settings::Ports;

    /// A node, and the desired network and the entries of pools.json that follow.
    struct Node {
        facts: NodeFacts,
        links: Vec<Link>,
        held: HashSet<IpAddr>,
        ours: bool,
    }

    impl Node {
        /// A virtual machine with the VNIC `storage` on ens6.
        fn new(spec: Value, status: Value) -> Self {
            let links = vec![link("ens3", 0x0a), link("ens5", 0x0b), link("ens6", 0x0c)];
            Self { facts: facts(attachment(&spec, &status)), links, held: HashSet::new(), ours: true }
        }

        /// A bare metal machine with the VNIC on a tag of port 0.
        fn on_bare_metal(mut self) -> Self {
            let mut vnics = self.facts.vnics().to_vec();
            vnics.iter_mut().for_each(|vnic| vnic.nic_index = Some(0));
            vnics[2].vlan_tag = vcn::VlanTag::new(7).ok();
            self.facts.vnics.absorb(Ok(vnics), Instant::now());
            self.links.pop();
            self
        }

        fn desired(&self) -> DesiredState {
            let mut slots = Slots::default();
            slots.assign(secondary(self.facts.vnics()), &TableReferences::default());
            let (ports, devices, requests) = (Ports::default(), Devices::default(), requests(&self.facts));
            let known = HostFacts {
                vnics: self.facts.vnics(),
                npn: self.facts.npn(),
                links: &self.links,
                devices: &devices,
                ipv6: true,
                own: &[],
                held: &self.held,
                requests: &requests,
            };
            let (ours, lived) = (self.ours, true);
            let policy =
                Policy { ports: &ports, pods_may_use_metadata: true, pods_may_spoof: false, ours, oke: true, lived };
            wanted(known, &slots, policy)
        }

        fn published(&self, current: Option<&Pools>) -> Vec<VnicPool> {
            let desired = self.desired();
            let vnics = desired.network.as_ref().map_or(&[][..], |network| &network.vnics);
            let hosted = ConfiguredVnics { vnics, ipv6: true };
            offers(&self.facts, &requests(&self.facts), hosted, &desired.exclusive, current)
        }

        /// The VNICs that are configured on the host, and whether it serves pods.
        fn host(&self) -> (Vec<String>, bool) {
            let network = self.desired().network.unwrap();
            let name = |host: &HostVnic| format!("{} {}", host.vnic.id.unique_id(), host.mtu);
            (network.vnics.iter().map(name).collect(), network.pods.is_some())
        }
    }

    fn pools(vnics: Vec<VnicPool>) -> Pools {
        Pools::new(BootId::from_text("a"), vnics, None)
    }

    fn shared() -> Node {
        let spec = json!({ "purpose": "Attach", "mtu": 1500, "allowedNamespaces": ["backup"], "ipv4Count": 2,
            "routes": [{ "destination": "172.16.0.0/12" }] });
        Node::new(spec, json!({ "podAddresses": ["10.0.64.8", "10.0.64.9"] }))
    }

    fn exclusive() -> Node {
        Node::new(json!({ "purpose": "Attach", "mode": "Exclusive" }), json!({}))
    }

    #[test]
    fn shared_vnic_offers_additional_addresses_and_is_configured_on_host() {
        let node = shared();
        assert_eq!(node.host(), (vec!["pods 9000".to_owned(), "storage 1500".to_owned()], true));
        let published = serde_json::to_value(node.published(None)).unwrap();
        let expected = json!([{
            "vnicId": "ocid1.vnic.oc1.iad.storage", "link": "ens6", "mac": "02:00:17:00:00:0c", "linkHasMac": true,
            "mtu": 1500, "table": 1001, "purpose": "attach",
            "attach": { "name": "storage", "mode": "Shared", "allowedNamespaces": ["backup"],
                "subnets": { "ipv4": "10.0.64.0/24" }, "routes": [{ "destination": "172.16.0.0/12" }] },
            "ipv4": { "router": "10.0.64.1", "reserved": ["10.0.64.7"], "addresses": ["10.0.64.8/32", "10.0.64.9/32"] },
        }]);
        assert_eq!(published, expected);
    }

    #[test]
    fn shared_vnic_is_served_when_another_program_provides_pod_network() {
        let mut node = shared();
        node.ours = false;
        assert_eq!(node.host(), (vec!["storage 1500".to_owned()], true), "the NativePodNetwork's is not touched");
        let (boot, now) = (BootId::from_text("a"), BootTime(1));
        let published = alone(node.published(None), None, &boot, now).unwrap();
        assert_eq!(published.vnics, node.published(None));
        assert_eq!(alone(Vec::new(), Some(&published), &boot, now).unwrap().vnics, []);
        assert_eq!(alone(Vec::new(), None, &boot, now), None, "no file where nothing was offered");
    }

    #[test]
    fn requested_vnic_is_configured_on_node_with_oke_cni() {
        let host = |purpose: &str| {
            let mut node =
                Node::new(json!({ "purpose": purpose, "routes": [{ "destination": "172.16.0.0/12" }] }), json!({}));
            node.ours = false;
            node.facts.npn.absorb(Ok(None), Instant::now());
            let routes = node.desired().network.unwrap().vnics.iter().map(|host| host.routes.len()).sum::<usize>();
            (node.host(), routes)
        };
        assert_eq!(host("Host"), ((vec!["storage 9000".to_owned()], false), 1));
        assert_eq!(host("Pods"), ((vec![], false), 0), "it may be OKE's");
    }

    #[test]
    fn exclusive_vnic_is_left_to_its_pod() {
        let mut node = exclusive();
        assert_eq!(node.host().0, ["pods 9000"]);
        let before = pools(node.published(None));
        let shown = |pool: &VnicPool| {
            let tag = pool.attach.as_ref().unwrap().vlan.map(|tag| tag.to_string());
            (pool.link.to_string(), tag, pool.link_has_mac, pool.families.ipv4.clone().unwrap().addresses)
        };
        let own: Vec<IpNetwork> = vec!["10.0.64.7/32".parse().unwrap()];
        assert_eq!(shown(&before.vnics[0]), ("ens6".into(), None, true, own.clone()));
        node.links.pop();
        assert_eq!(node.desired().conditions.iter().map(|it| it.reason.word()).collect::<Vec<_>>(), ["LinkMissing"]);
        assert_eq!(node.published(Some(&before)), [], "it is nowhere");
        node.held.insert("10.0.64.7".parse().unwrap());
        assert_eq!(node.desired().conditions, [], "it is in a pod");
        assert_eq!(node.published(Some(&before)), before.vnics);
        let metal = exclusive().on_bare_metal();
        assert_eq!(shown(&metal.published(None)[0]), ("ens3".into(), Some("7".into()), false, own));
        assert_eq!(metal.host().0, [""; 0], "the untagged one is on the primary VNIC's port");
    }

    #[test]
    fn entries_stay_while_nothing_is_known_of_vnic_attachments() {
        let mut node = shared();
        let before = pools(node.published(None));
        node.facts.attachments = crate::sources::attachments::KnownAttachments::default();
        assert_eq!(node.published(Some(&before)), before.vnics);
        node.facts.attachments.watched(Vec::<VnicAttachment>::new());
        assert_eq!(node.published(Some(&before)), []);
    }
}
