//! ADD: reserve, build, commit. Whatever fails, what was done is undone before the error is answered.

use std::path::Path;

use cni::{AddRequest, AddResult, Error, Interface, Ip, Route, Success};
use datapath::pod::PodNetwork;
use datapath::{Places, apply, dismantle, plan, pod};
use ipam::{Allocation, NetnsRecord, PodRecord, Pools, Request};
use ipnetwork::IpNetwork;
use netlink::Netns;
use vcn::Family;

use crate::conf::Conf;
use crate::failure;
use crate::node::{self, Node, SYSCTL_ROOT};
use crate::report::Report;

pub(crate) fn add(request: &AddRequest<Conf>, report: &mut Report) -> Result<AddResult, Error> {
    let netns = Netns::open(&request.netns).map_err(|error| failure::of_netns(&request.netns, &error))?;
    let node = Node::open(&request.conf.state_dir).map_err(|error| failure::of_ipam(&error))?;
    let pools = node.pools().map_err(|error| failure::of_ipam(&error))?;
    report.mark("pools");

    let asked = asked(request, &netns);
    let reservation = node
        .store
        .update(|held| held.reserve(&pools, asked, node.now))
        .map_err(|error: ipam::Error| failure::of_ipam(&error))?;
    let allocation = reservation.allocation;
    report.addresses(&allocation.addresses);
    if let Some(rested) = reservation.rested {
        report.note(format!(
            "the address had rested only {} s of its cooldown: the pool is nearly empty",
            rested.as_secs()
        ));
    }
    report.mark("ipam");

    let network = node::network(&allocation, Some(&pools));
    let built = build(
        &network,
        netns,
        Leftover { allocation: &allocation, pools: &pools, existing: reservation.existing },
        report,
    )
    .and_then(|()| {
        node.store.update(|held| held.commit(&request.key)).map_err(|error: ipam::Error| failure::of_ipam(&error))
    });
    report.mark("commit");
    match built {
        Ok(()) => Ok(success(&network, &request.netns, request).into()),
        Err(error) => Err(give_up(error, request, &node, &allocation)),
    }
}

/// What an earlier ADD of this attachment may have left.
struct Leftover<'a> {
    allocation: &'a Allocation,
    pools: &'a Pools,
    existing: bool,
}

/// Makes the network. Nothing is looked at first, for a fresh attachment has nothing; only when the kernel says that
/// something is there already, or the allocation was, is the remainder of the earlier ADD taken over or cleared away.
fn build(network: &PodNetwork, netns: Netns, leftover: Leftover<'_>, report: &mut Report) -> Result<(), Error> {
    let mut places = Places::host(Path::new(SYSCTL_ROOT))
        .map_err(|error| failure::of_host(&error))?
        .with_pod(netns)
        .map_err(|error| failure::of_host(&error))?;
    report.mark("netns");
    let desired = pod::desired(network);
    let observe = |places: &mut Places| {
        node::observe(&leftover.allocation.key, Some(leftover.allocation), Some(leftover.pools), places)
    };
    let observed = if leftover.existing { observe(&mut places)? } else { Vec::new() };
    let outcome = match apply(&plan(&desired, &observed), &mut places) {
        Err(error) if leftover.existing || error.is_already_exists() => {
            let observed = observe(&mut places)?;
            if observed.is_empty() {
                Err(error)
            } else {
                dismantle(&plan(&[], &observed), &mut places);
                apply(&plan(&desired, &[]), &mut places)
            }
        }
        other => other,
    };
    report.mark("network");
    outcome.map_err(|error| failure::of_datapath(&error))
}

/// The address goes back; the error stays the first one.
fn give_up(error: Error, request: &AddRequest<Conf>, node: &Node<'_>, allocation: &Allocation) -> Error {
    if let Ok(mut places) = Places::host(Path::new(SYSCTL_ROOT))
        && let Ok(observed) = node::observe(&request.key, Some(allocation), None, &mut places)
    {
        dismantle(&plan(&[], &observed), &mut places);
    }
    match node.store.update(|held| Ok::<_, ipam::Error>(held.release(&request.key, node.now))) {
        Ok(_) => error,
        Err(release) => error.with_details("the address could not be given back").caused_by(&release),
    }
}

fn asked(request: &AddRequest<Conf>, netns: &Netns) -> Request {
    let pod = match (&request.args.pod_namespace, &request.args.pod_name) {
        (Some(namespace), Some(name)) => {
            Some(PodRecord { namespace: namespace.clone(), name: name.clone(), uid: request.args.pod_uid.clone() })
        }
        _ => None,
    };
    let id = netns.id();
    Request {
        key: request.key.clone(),
        pod,
        host_link: node::ends(&request.key).host,
        netns: Some(NetnsRecord { path: request.netns.clone(), dev: id.dev, inode: id.inode }),
    }
}

fn success(network: &PodNetwork, netns: &Path, request: &AddRequest<Conf>) -> Success {
    let ends = &network.ends;
    let host = Interface {
        name: ends.host.to_string(),
        mac: Some(ends.host_mac),
        mtu: Some(network.mtu),
        ..Interface::default()
    };
    let inside = Interface {
        name: ends.pod.to_string(),
        mac: Some(ends.pod_mac),
        mtu: Some(network.mtu),
        sandbox: Some(netns.display().to_string()),
        ..Interface::default()
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
            .map(|family| Route::new(pod::everything(family), Some(pod::gateway(family))))
            .collect(),
        dns: request.config.dns.clone(),
    }
}
