//! ADD: reserve, build, commit. Whatever fails, what was done is undone before the error is answered.

use std::path::Path;

use cni::{AddRequest, AddResult, AttachmentKey, Error, Interface, Ip, Route, Success};
use datapath::pod::{Owner, PodNetwork};
use datapath::{Object, Place, Places, apply, dismantle, plan, pod};
use ipam::{Allocation, NetnsRecord, PodRecord, Pools, Request, Reservation};
use ipnetwork::IpNetwork;
use netlink::Netns;
use vcn::Family;

use crate::aftercare;
use crate::conf::Conf;
use crate::del;
use crate::failure;
use crate::node::{self, Node, SYSCTL_ROOT};
use crate::report::Report;

pub(crate) fn add(request: &AddRequest<Conf>, report: &mut Report) -> Result<AddResult, Error> {
    let netns = Netns::open(&request.netns).map_err(|error| failure::of_netns(&request.netns, &error))?;
    let node = Node::open(&request.conf.state_dir).map_err(|error| failure::of_ipam(&error))?;
    let pools = node.pools().map_err(|error| failure::of_ipam(&error))?;
    report.mark("pools");

    let _lock = node.store.attachment(&request.key).map_err(|error| failure::of_ipam(&error))?;
    let reservation = reserve(&node, &pools, &asked(request, &netns), report)?;
    // Whether this ADD only repeats one that succeeded: then the pod is in use, and stays whatever becomes of this one.
    let settled = reservation.existing && reservation.allocation.tentative_until.is_none();
    let allocation = reservation.allocation;
    report.addresses(&allocation.addresses);
    if let Some(rested) = reservation.rested {
        report.note(format!(
            "the address had rested only {} s of its cooldown: the pool is nearly empty",
            rested.as_secs()
        ));
    }
    report.mark("ipam");
    // The agent has seen to it already, as a rule.
    if let Some(trouble) = aftercare::forget(reservation.unforgotten) {
        report.note(trouble);
    }

    let network = node::network(&allocation, Some(&pools), &request.conf);
    let built = build(
        &network,
        netns,
        Leftover { allocation: &allocation, node: &node, existing: reservation.existing },
        report,
    )
    .and_then(|()| node.store.commit(&request.key).map_err(|error| failure::of_ipam(&error)));
    report.mark("commit");
    match built {
        Ok(()) => Ok(success(&network, &request.netns, request).into()),
        Err(error) if settled => Err(error),
        Err(error) => Err(give_up(error, request, &node, &allocation, report)),
    }
}

/// Reserves addresses. An empty record may be a lost one: before it is believed, the kernel is asked who has what. A full
/// one may hold what killed runs have left.
fn reserve(node: &Node<'_>, pools: &Pools, asked: &Request, report: &mut Report) -> Result<Reservation, Error> {
    let (mut sure, mut swept) = (false, false);
    loop {
        let reserved = node.store.update_for(&asked.key, node.now, |held| match held.is_empty() && !sure {
            true => Ok(None),
            false => held.reserve(pools, asked.clone(), node.now).map(Some),
        });
        match reserved {
            Ok(Some(reservation)) => return Ok(reservation),
            Ok(None) | Err(ipam::Error::Damaged { .. }) if !sure => {
                node.rebuild_record(Some(pools), Some(&asked.key), report)?;
                sure = true;
            }
            Ok(None) => return Err(failure::of_ipam(&ipam::Error::NoAllocation(asked.key.to_string()))),
            Err(ipam::Error::Exhausted(_)) if !swept => {
                node.reclaim(report)?;
                swept = true;
            }
            Err(error) => return Err(failure::of_ipam(&error)),
        }
    }
}

/// What earlier ADDs, of this attachment or of others, may have left.
struct Leftover<'a> {
    allocation: &'a Allocation,
    node: &'a Node<'a>,
    existing: bool,
}

/// Makes the network. Nothing is looked at first, for a fresh attachment has nothing; only when the kernel says that
/// something is there already, or the allocation was, is the remainder of an earlier ADD taken over or cleared away.
fn build(network: &PodNetwork, netns: Netns, leftover: Leftover<'_>, report: &mut Report) -> Result<(), Error> {
    let mut places = Places::host(Path::new(SYSCTL_ROOT))
        .map_err(|error| failure::of_host(&error))?
        .with_pod(netns)
        .map_err(|error| failure::of_host(&error))?;
    report.mark("netns");
    let desired = pod::desired(network);
    let observed = if leftover.existing { leftover.own(&mut places)? } else { Vec::new() };
    // A host end whose other end is elsewhere belongs to an earlier namespace of this attachment.
    let severed = !observed.is_empty() && !observed.iter().any(|(place, _)| *place == Place::Pod);
    let outcome = match severed {
        true => None,
        false => match apply(&plan(&desired, &observed), &mut places) {
            Err(error) if leftover.existing || error.is_already_exists() => Some(error),
            Err(error) => return Err(failure::of_datapath(&error)),
            Ok(()) => {
                report.mark("network");
                return Ok(());
            }
        },
    };
    let cleared = leftover.clear(network, &mut places, report)?;
    let again = match outcome {
        Some(error) if !cleared => Err(error),
        _ => apply(&plan(&desired, &[]), &mut places),
    };
    report.mark("network");
    again.map_err(|error| failure::of_datapath(&error))
}

impl Leftover<'_> {
    /// What there is of this attachment.
    fn own(&self, places: &mut Places) -> Result<Vec<(Place, Object)>, Error> {
        node::observe(&self.allocation.key, Some(self.allocation), places)
    }

    /// Clears away what is in this attachment's place: what it left itself, and what attachments without record left
    /// under its addresses (whose record was lost). Whether there was anything.
    fn clear(&self, network: &PodNetwork, places: &mut Places, report: &mut Report) -> Result<bool, Error> {
        let own = self.own(places)?;
        dismantle(&plan(&[], &own), places);
        let mut cleared = !own.is_empty();
        let owners = pod::owners(places).map_err(|error| failure::of_datapath(&error))?;
        let held = self.node.store.read().map_err(|error| failure::of_ipam(&error))?;
        let in_the_way = |owner: &&Owner| {
            owner.link != network.ends.host && network.addresses.iter().any(|a| a.address == owner.address)
        };
        for owner in owners.iter().filter(in_the_way) {
            let key = owner.identity.as_ref().and_then(|identity| identity.parse::<AttachmentKey>().ok());
            let Some(key) = key.filter(|key| held.find(key).is_none()) else { continue };
            let lock = self.node.store.try_attachment(&key).map_err(|error| failure::of_ipam(&error))?;
            let Some(_lock) = lock else { continue };
            report.note(format!("{} was left by {key}, which is not on record: taken down", owner.link));
            del::take_down(&key, None, report)?;
            cleared = true;
        }
        Ok(cleared)
    }
}

/// The address goes back, unless something of the network is still there: then the record must stay, for the DEL that
/// follows to find it by. The error stays the first one.
fn give_up(
    error: Error,
    request: &AddRequest<Conf>,
    node: &Node<'_>,
    allocation: &Allocation,
    report: &mut Report,
) -> Error {
    if let Err(left) = del::take_down(&request.key, Some(allocation), report) {
        return error.with_details(left);
    }
    match node.release(&request.key, report) {
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
        mtu: request.conf.mtu,
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
