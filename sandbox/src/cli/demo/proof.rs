//! What the demo proves, by packets.

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use netlink::{NeighbourFilter, Rule, Socket};
use sandbox::{Capabilities, DOMAIN, Node, Outcome};
use vcn::{Family, HOST_LINK_PREFIX, PROTOCOL, RulePriorities};

use super::report;
use super::{Running, median};

/// Runs every proof from every pod; answers how many failed.
pub(crate) fn prove(kernel: Capabilities, nodes: &[Arc<Node>], pods: &[Running]) -> usize {
    report::title("packets, from every pod");
    let failures = Cell::new(0);
    let claim = |what: &str, probe: &dyn Fn(&Running) -> Vec<(String, Outcome)>| {
        failures.set(failures.get() + settle(what, pods, probe));
    };
    for family in Family::ALL {
        claim(&format!("{family}: every pod of the other node"), &|me| {
            let others = pods.iter().filter(|other| other.node.name() != me.node.name());
            others.flat_map(|other| addresses(other, family)).map(|address| ping(me, address)).collect()
        });
        claim(&format!("{family}: every other pod of its node"), &|me| {
            let same = |other: &&Running| other.node.name() == me.node.name() && other.pod.name() != me.pod.name();
            pods.iter().filter(same).flat_map(|other| addresses(other, family)).map(|a| ping(me, a)).collect()
        });
        claim(&format!("{family}: its own node"), &|me| {
            me.node.address(family).map(|address| ping(me, address)).into_iter().collect()
        });
        claim(&format!("{family}: the other node"), &|me| {
            let other = nodes.iter().filter(|node| node.name() != me.node.name());
            other.filter_map(|node| node.address(family)).map(|address| ping(me, address)).collect()
        });
    }
    // The IPv6 router has a link-local address, which means nothing beyond the VNIC's own link; pods reach through it.
    claim("IPv4: the virtual router of its VNIC's subnet", &|me| {
        let routers = me.node.vnics().into_iter().filter(|vnic| !vnic.primary);
        let routers = routers.filter_map(|vnic| vnic.subnet.router(Family::Ipv4)).take(1);
        routers.map(|address| ping(me, address)).collect()
    });
    if !kernel.nft {
        report::line(
            "this kernel has no nf_tables, so pods cannot use 169.254.169.254 (DNS, time, metadata): not tried",
        );
        return failures.get();
    }
    claim("169.254.169.254 port 53: a name", &|me| {
        let name = format!("{}.{DOMAIN}", me.node.name());
        vec![(name.clone(), me.pod.resolve(&name))]
    });
    claim("169.254.169.254 port 123: the time", &|me| vec![("time".into(), me.pod.query_time())]);
    claim("169.254.169.254 port 80: metadata (allowed)", &|me| vec![("metadata".into(), me.pod.read_metadata())]);
    failures.get()
}

/// Anything of pods that is still on a node.
pub(crate) fn left_over(node: &Node) -> Result<Vec<String>> {
    let found = node.run(|| -> netlink::Result<Vec<String>> {
        let mut socket = Socket::open()?;
        let mut left = Vec::new();
        let links = socket.links()?;
        left.extend(links.iter().filter(|l| l.name.as_str().starts_with(HOST_LINK_PREFIX)).map(|l| l.name.to_string()));
        for family in Family::ALL {
            let of_pods = |rule: &Rule| rule.protocol == PROTOCOL && rule.priority == RulePriorities::FROM_POD;
            let ours = socket.rules(family)?.into_iter().filter(of_pods);
            left.extend(ours.map(|rule| format!("rule {} {:?}", rule.priority, rule.from)));
        }
        let proxies = socket.neighbours(&NeighbourFilter { family: None, index: None, proxy: true })?;
        left.extend(proxies.iter().map(|entry| format!("proxy {}", entry.address)));
        Ok(left)
    })?;
    Ok(found?)
}

fn settle(what: &str, pods: &[Running], probe: &dyn Fn(&Running) -> Vec<(String, Outcome)>) -> usize {
    let mut took: Vec<Duration> = Vec::new();
    let mut failed = Vec::new();
    for me in pods {
        for (target, outcome) in probe(me) {
            match outcome {
                Ok(time) => took.push(time),
                Err(why) => failed.push(format!("{} → {target}: {why}", me.pod.name())),
            }
        }
    }
    // A claim that was never put to the test is not proven.
    let none = usize::from(took.is_empty() && failed.is_empty());
    let answer = format!("{} of {} answered", took.len(), took.len() + failed.len());
    report::row(what, &answer, median(&mut took));
    failed.iter().for_each(|failure| report::line(failure));
    failed.len() + none
}

fn addresses(running: &Running, family: Family) -> Vec<IpAddr> {
    running.attachment.addresses().filter(|address| Family::of(*address) == family).collect()
}

fn ping(me: &Running, address: IpAddr) -> (String, Outcome) {
    (address.to_string(), me.pod.ping(address))
}
