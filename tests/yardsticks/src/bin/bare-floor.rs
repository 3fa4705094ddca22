//! The floor under an ADD: a program that starts and makes the netlink calls of an IPv4 pod, and nothing else. No
//! document, no files, no records, no choice of an address, no undo. The bench compares our plugin with it.
//!
//!   bare-floor add NETNS | bare-floor del NETNS

use std::os::fd::AsFd;
use std::path::Path;

use anyhow::Context;
use ipnetwork::IpNetwork;
use netlink::{Address, Home, LinkChange, LinkKind, Neighbour, Netns, NewLink, Peer, Route, Rule, Socket};
use vcn::{Family, IfName, MacAddr, Mtu, POD_GATEWAY_V4, PODS_TABLE, PROTOCOL, RulePriorities, TableId};

const HOST_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const POD_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const POD: [u8; 4] = [10, 0, 0, 100];

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(verb), Some(netns)) = (arguments.next(), arguments.next()) else {
        anyhow::bail!("usage: bare-floor add|del NETNS");
    };
    let (host_link, pod_link, vnic) = (name("vcn0123456789ab")?, name("eth0")?, name("ens5")?);
    let mut host = Socket::open()?;
    let address = IpNetwork::from(std::net::IpAddr::from(POD));
    let (gateway, table) = (POD_GATEWAY_V4.into(), TableId(vcn::TABLE_BASE + 1));
    let mut from_pod = Rule::new(Family::Ipv4, RulePriorities::FROM_POD, table, PROTOCOL);
    from_pod.from = Some(address);
    let vnic = host.index_of(&vnic)?;
    if verb == "del" {
        host.delete_rule(&from_pod)?;
        host.delete_neighbour(&Neighbour::proxy(vnic, address.ip()))?;
        return host.delete_link_named(&host_link).context("delete the pair");
    }

    let netns = Netns::open(Path::new(&netns))?;
    let home = Home::of_socket(&host)?;
    let mut pod = Socket::open_in_from(&netns, &home)?;
    let peer = Peer { name: host_link.clone(), mac: Some(HOST_MAC), mtu: Some(Mtu::VCN), netns: Some(home.as_fd()) };
    let mut veth = NewLink::new(pod_link.clone(), LinkKind::Veth(peer));
    (veth.mac, veth.mtu, veth.up) = (Some(POD_MAC), Some(Mtu::VCN), true);
    pod.add_link(&veth)?;
    let alias = LinkChange::Alias("vcn-native:vcn-native/0123456789abcdef/eth0".into());
    host.change_link_named(&host_link, &[alias, LinkChange::Up])?;

    let inside = pod.index_of(&pod_link)?;
    pod.replace_address(&Address::new(inside, address))?;
    pod.replace_neighbour(&Neighbour::permanent(inside, gateway, HOST_MAC))?;
    let mut to_gateway = Route::new(gateway.into(), inside, TableId::MAIN, PROTOCOL);
    to_gateway.scope_link = true;
    pod.add_route(&to_gateway)?;
    let mut default = Route::new(datapath::pod::everything(Family::Ipv4), inside, TableId::MAIN, PROTOCOL);
    (default.gateway, default.onlink) = (Some(gateway), true);
    pod.add_route(&default)?;

    let outside = host.index_of(&host_link)?;
    host.replace_neighbour(&Neighbour::proxy(outside, gateway))?;
    let mut route = Route::new(address, outside, PODS_TABLE, PROTOCOL);
    route.scope_link = true;
    host.add_route(&route)?;
    host.replace_neighbour(&Neighbour::proxy(vnic, address.ip()))?;
    host.add_rule(&from_pod).context("add the last rule")
}

fn name(text: &str) -> anyhow::Result<IfName> {
    Ok(IfName::new(text)?)
}
