//! ADD: what a pod's own network is, and what it means for its addresses that it cannot be made. The protocol is `attachment`'s.

use std::net::IpAddr;

use attachment::{Addition, AddressProblem, BuildFailure, Built, Node, Report, code, failure, make};
use cni::{AddRequest, AddResult, Error, Interface, Ip, Route, Success};
use datapath::pod::PodNetwork;
use datapath::{Places, Snapshot, pod};
use ipam::{Allocation, Reservation};
use ipnetwork::IpNetwork;
use vcn::{Family, IfName};

use crate::conf::Conf;

pub(crate) fn add(request: &AddRequest<Conf>, report: &mut Report) -> Result<AddResult, Error> {
    let mut places = attachment::enter(&request.netns)?;
    report.mark("netns");
    let node = Node::open().map_err(|error| failure::of_ipam(&error))?;
    let pools = node.pools().map_err(|error| failure::of_ipam(&error))?;
    report.mark("pools");

    let addition = Addition { pools: &pools, source: &pools, request: requested(request, &places) };
    let added = attachment::add(&node, &addition, report, |reservation, _| {
        let network = attachment::network(&reservation.allocation, Some(&pools), request.conf.mtu);
        build(&network, &mut places, reservation)?;
        Ok(Built { network, link: None })
    })?;
    Ok(success(&added.network, request).into())
}

fn build(network: &PodNetwork, places: &mut Places, reservation: &Reservation) -> Result<(), BuildFailure> {
    // The kernel would take all of it, and forward nothing.
    if !reservation.is_settled()
        && let Some(link) = lowered(network, places)
    {
        let note = format!("link {link} is down");
        let msg = format!(
            "link {link}, the VNIC's of the pod's address, is down; `ip link set {link} up` on the node, or find the program that lowers it"
        );
        let problem = Some(AddressProblem::Link { link, note });
        return Err(BuildFailure { error: Error::new(code::STEP_FAILED, msg), problem });
    }
    let held = || network.addresses.iter().map(|pod| pod.address).collect();
    let observe = |places: &mut Places| pod::observe(&network.ends, held(), places);
    let observed = if reservation.existing { observe(places) } else { Ok(Vec::new()) };
    let observed = observed.map_err(|error| failure::of_datapath(&error))?;
    let made = make(&pod::desired(network), &observed, reservation, observe, places);
    made.map_err(|error| explained(network, &error, places))
}

/// A link of the addresses' VNICs that is there and down. One question for each, and as a rule both families have one VNIC.
fn lowered(network: &PodNetwork, places: &mut Places) -> Option<IfName> {
    let mut links: Vec<&IfName> = network.addresses.iter().map(|pod| &pod.vnic_link).collect();
    links.dedup();
    links.into_iter().find(|link| places.is_down(link)).cloned()
}

/// What it means for the pod's addresses that its network could not be made.
fn explained(network: &PodNetwork, error: &datapath::Error, places: &mut Places) -> BuildFailure {
    let mut links = network.addresses.iter().map(|pod| &pod.vnic_link);
    let problem = if error.is_not_found() {
        let absent = links.find(|link| !places.has_link(link)).cloned();
        absent.map(|link| AddressProblem::Link { note: format!("the host has no link {link}"), link })
    } else if error.is_already_exists() {
        match is_address_taken(network, places) {
            Ok(taken) => taken.then_some(AddressProblem::Taken),
            Err(error) => return error.into(),
        }
    } else {
        None
    };
    BuildFailure { error: failure::of_datapath(error), problem }
}

/// Whether a route leads to one of the network's addresses by another pod's link.
fn is_address_taken(network: &PodNetwork, places: &mut Places) -> Result<bool, Error> {
    let host = Snapshot::of_host(places).map_err(|error| failure::of_datapath(&error))?;
    let ours = |address: IpAddr| network.addresses.iter().any(|pod| pod.address == address);
    Ok(pod::owners(&host).iter().any(|owner| owner.link != network.ends.host && ours(owner.address)))
}

fn requested(request: &AddRequest<Conf>, places: &Places) -> Allocation {
    Allocation {
        pod: attachment::pod_of(&request.args),
        netns: attachment::netns_of(&request.netns, places),
        mtu: request.conf.mtu,
        ..Allocation::requested(request.key.clone(), attachment::ends(&request.key).host)
    }
}

fn success(network: &PodNetwork, request: &AddRequest<Conf>) -> Success {
    let ends = &network.ends;
    let host = Interface {
        name: ends.host.to_string(),
        mac: Some(ends.host_mac),
        mtu: Some(network.mtu),
        sandbox: String::new(),
    };
    let inside = Interface {
        name: ends.pod.to_string(),
        mac: Some(ends.pod_mac),
        mtu: Some(network.mtu),
        sandbox: request.netns.path().display().to_string(),
    };
    let addresses = || network.addresses.iter().map(|a| a.address);
    Success {
        interfaces: vec![host, inside],
        ips: addresses()
            .map(|address| Ip {
                address: IpNetwork::from(address),
                gateway: Some(pod::gateway(Family::of(address))),
                interface: Some(1),
            })
            .collect(),
        routes: addresses()
            .map(Family::of)
            .map(|family| Route { dst: pod::everything(family), gw: Some(pod::gateway(family)) })
            .collect(),
        dns: request.config.dns.clone(),
    }
}
