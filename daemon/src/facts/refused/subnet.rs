//! What the sources say about one VNIC's subnet, and which addresses it excludes.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use api::npn::NpnAddressing;
use ipnetwork::IpNetwork;
use vcn::{Family, Ocid, SubnetAddressing, Vnic};

use super::Refusal;
use super::blocks::{holds, is_single, kind, overlap, without};

/// What is known of the subnet of one VNIC, in one family.
pub(super) struct SubnetFacts<'a> {
    id: &'a Ocid,
    /// The CIDR blocks that a source names.
    blocks: Vec<IpNetwork>,
    /// Whether the subnet has no others.
    is_complete: bool,
    /// The CIDR blocks of other VNICs' subnets.
    others: Vec<(IpNetwork, &'a Ocid)>,
    /// Addresses that no pod may get.
    closed: BTreeMap<IpAddr, Refusal>,
}

impl<'a> SubnetFacts<'a> {
    /// What is known without the VNICs' own addresses.
    pub(super) fn of(id: &'a Ocid, family: Family, vnics: &'a [Vnic], offered: Option<&NpnAddressing>) -> Self {
        let mut facts =
            Self { id, blocks: Vec::new(), is_complete: false, others: Vec::new(), closed: BTreeMap::new() };
        let known = || vnics.iter().filter_map(|vnic| Some((&vnic.id, vnic.addressing.of(family)?)));
        let own = known().find(|(vnic, _)| *vnic == id).map(|(_, at)| at);
        let routers = own.map(|at| at.router).into_iter().chain(offered.and_then(|offered| offered.router));
        routers.for_each(|router| facts.close(router, Refusal::Router));
        own.into_iter().for_each(|at| facts.open(at.subnet));
        if let Some(NpnAddressing { subnet, subnets, .. }) = offered {
            subnet.iter().chain(subnets).for_each(|block| facts.open(*block));
            // A subnet may have several CIDR blocks; only `subnetCidrs` is a list and can name all of them. The legacy
            // `subnetCidr` and the metadata service's `subnetCidrBlock` name one.
            facts.is_complete = !subnets.is_empty();
        }
        for (vnic, at) in known().filter(|(vnic, _)| *vnic != id) {
            match own.is_some_and(|own| own.router == at.router) {
                // One router is one subnet: this is a CIDR block of the same.
                true => facts.open(at.subnet),
                false => facts.others.push((at.subnet, vnic)),
            }
        }
        facts
    }

    /// Closes the VNICs' own addresses. Of an IPv6 VNIC itself the metadata service lists its pods' addresses, too.
    pub(super) fn without_own(mut self, family: Family, vnics: &[Vnic]) -> Self {
        for vnic in vnics.iter().filter(|vnic| family == Family::Ipv4 || vnic.id != *self.id) {
            let listed = vnic.addressing.of(family).into_iter().flat_map(SubnetAddressing::listed);
            listed.for_each(|address| self.close(address, Refusal::OwnOf(vnic.id.clone())));
        }
        self
    }

    /// Takes in a CIDR block of the subnet. OCI reserves the first two IPv4 addresses (network, router) and the last one
    /// (broadcast) of each; the first IPv6 address is that of all routers (RFC 4291, 2.6.1).
    fn open(&mut self, block: IpNetwork) {
        let reserved = match block {
            IpNetwork::V4(block) if block.prefix() <= 30 => {
                let network = block.network();
                vec![network.into(), Ipv4Addr::from(u32::from(network) | 1).into(), block.broadcast().into()]
            }
            IpNetwork::V6(block) if block.prefix() <= 126 => vec![IpAddr::from(block.network())],
            IpNetwork::V4(_) | IpNetwork::V6(_) => Vec::new(),
        };
        reserved.into_iter().for_each(|address| self.close(address, Refusal::Reserved(block)));
        self.blocks.push(block);
    }

    /// The first reason stays.
    fn close(&mut self, address: IpAddr, why: Refusal) {
        self.closed.entry(address).or_insert(why);
    }

    pub(super) fn refusal(&self, block: IpNetwork) -> Option<Refusal> {
        if let Some(kind) = kind(block) {
            return Some(Refusal::Kind(kind));
        }
        if let Some(why) = self.closed.get(&block.ip()).filter(|_| is_single(block)) {
            return Some(why.clone());
        }
        if self.blocks.iter().any(|own| holds(*own, block)) {
            return None;
        }
        match self.others.iter().find(|(other, _)| overlap(*other, block)) {
            Some((_, vnic)) => Some(Refusal::InSubnetOf((*vnic).clone())),
            None => self.is_complete.then_some(Refusal::Outside),
        }
    }

    /// What of a block pods may have. Its VNIC's own address may be in it: pools.json reserves that.
    pub(super) fn usable(&self, block: IpNetwork, refuse: &mut impl FnMut(IpNetwork, Refusal)) -> Vec<IpNetwork> {
        if let Some(why) = self.refusal(block) {
            refuse(block, why);
            return Vec::new();
        }
        let mut left = vec![block];
        if !is_single(block) {
            let own = |why: &Refusal| matches!(why, Refusal::OwnOf(owner) if owner == self.id);
            let inside = self.closed.range(block.network()..=block.broadcast()).filter(|(_, why)| !own(why));
            for (address, why) in inside {
                left = left.into_iter().flat_map(|piece| without(piece, *address)).collect();
                refuse((*address).into(), why.clone());
            }
            left.sort_unstable();
        }
        left
    }
}
