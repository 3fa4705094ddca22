//! A pod as the plugin makes and removes it, in steps that a test can stop between.

use std::net::IpAddr;
use std::path::Path;

use datapath::pod::{LinkEnds, PodAddress, PodNetwork};
use datapath::{Change, Places, Step, apply, dismantle, plan, pod};
use host_harness::{path_of, pings};
use ipam::{Allocation, BootId, BootTime, Pools, Store, TENTATIVE_LIFETIME};
use netlink::Netns;
use vcn::{IfName, Mtu};

use crate::node::{Node, name, wait_for};

/// A pod on a node.
pub(crate) struct Pod {
    netns: Netns,
    allocation: Allocation,
    network: PodNetwork,
}

impl Pod {
    /// ADD.
    pub(crate) fn add(node: &Node, container: &str) -> Self {
        let key = format!("vcn-native/{container}/eth0");
        let ends = LinkEnds::of(&key, name("eth0"));
        let mut allocation = reserve(node, &published(node), &key, ends.host.clone());
        let address = |assigned: &ipam::AssignedAddress| PodAddress {
            address: assigned.address,
            vnic_link: assigned.vnic_link.clone(),
            table: assigned.table,
        };
        let network = PodNetwork { ends, mtu: Mtu::VCN, addresses: allocation.addresses.iter().map(address).collect() };
        let netns = Netns::create().unwrap();
        node.inside(|| {
            let pod = Netns::open(&path_of(&netns)).unwrap();
            let mut places = Places::host(Path::new("/proc/sys")).unwrap().with_pod(pod).unwrap();
            apply(&plan(&pod::desired(&network), &[]), &mut places).unwrap();
        });
        store(node).commit(&allocation.key).unwrap();
        allocation.tentative_until = None;
        Self { netns, allocation, network }
    }

    /// DEL.
    pub(crate) fn del(&self, node: &Node) {
        self.take_down(node, |_| true);
        self.release(node);
    }

    /// The part of a DEL that removes these things.
    pub(crate) fn take_down(&self, node: &Node, those: impl Fn(&Step) -> bool + Send) {
        node.inside(|| {
            let mut places = Places::host(Path::new("/proc/sys")).unwrap();
            let recorded = pod::recorded(&self.network, &mut places).unwrap();
            let steps: Vec<Step> = plan(&[], &recorded).into_iter().filter(those).collect();
            assert!(dismantle(&steps, &mut places).is_empty());
        });
    }

    /// The last part of a DEL.
    pub(crate) fn release(&self, node: &Node) {
        let now = BootTime::now().unwrap();
        store(node).update(|held| Ok::<_, ipam::Error>(held.release(&self.allocation.key, now))).unwrap();
    }

    /// As if its ADD had not finished yet.
    pub(crate) fn reopen(&self, node: &Node) {
        let until = BootTime::now().unwrap().after(TENTATIVE_LIFETIME);
        let reopened = store(node).update(|held| {
            let mut all = held.allocations.iter_mut();
            all.find(|it| it.key == self.allocation.key).unwrap().tentative_until = Some(until);
            Ok::<_, ipam::Error>(())
        });
        reopened.unwrap();
    }

    /// As if its ADD had been killed long ago.
    pub(crate) fn expire(&self, node: &Node) {
        let expired = store(node).update(|held| {
            let mut all = held.allocations.iter_mut();
            all.find(|it| it.key == self.allocation.key).unwrap().tentative_until = Some(BootTime::default());
            Ok::<_, ipam::Error>(())
        });
        expired.unwrap();
    }

    pub(crate) fn host_link(&self) -> &IfName {
        &self.network.ends.host
    }

    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        self.network.addresses.iter().map(|address| address.address).collect()
    }

    /// Waits until it reaches its routers. A packet that is sent before the kernel has noticed a link's carrier is lost,
    /// and the answer to another may come late.
    pub(crate) fn wait_connected(&self) {
        wait_for("a pod to be connected", || self.is_connected(), || format!("{:?}", self.addresses()));
    }

    /// Whether it reaches its routers.
    pub(crate) fn is_connected(&self) -> bool {
        ["10.0.33.1", "2603:c020:0:33::1"].iter().all(|router| pings(&self.netns, router))
    }
}

/// What the plugins of a node know.
pub(crate) fn store(node: &Node) -> Store {
    Store::new(&node.path("run"), BootId::current().unwrap())
}

/// What the agent of a node has published.
pub(crate) fn published(node: &Node) -> Pools {
    Pools::read(&node.path("run"), &BootId::current().unwrap()).unwrap()
}

/// The first part of an ADD.
pub(crate) fn reserve(node: &Node, pools: &Pools, key: &str, host_link: IfName) -> Allocation {
    let request = Allocation::requested(key.parse().unwrap(), host_link);
    store(node).update(|held| held.reserve(pools, request, BootTime::now()?)).unwrap().allocation
}

/// A pod gets an address of a VNIC that is requested by name, as `vnic-attach` records that.
pub(crate) fn hold(node: &Node, key: &str) -> Allocation {
    let mut pools = published(node);
    pools.vnics.retain(|pool| pool.attach.is_some());
    pools.vnics[0].purpose = vcn::Purpose::Pods;
    pools.pod_families = None;
    let allocation = reserve(node, &pools, key, name("net1"));
    store(node).commit(&allocation.key).unwrap();
    allocation
}

/// Whether a step of a DEL removes a pod's link.
pub(crate) fn is_link(step: &Step) -> bool {
    matches!(&step.change, Change::Delete(datapath::Object::Link(_)))
}
