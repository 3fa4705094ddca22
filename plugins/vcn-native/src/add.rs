//! ADD: reserve, build, commit. Whatever fails, what was done is undone before the error is answered.

use std::net::IpAddr;

use attachment::{DeletionOutcome, Node, Report, Source, code, failure, make};
use cni::{AddRequest, AddResult, Error, ErrorCode, Interface, Ip, Route, Success};
use datapath::pod::{LinkEnds, PodNetwork};
use datapath::{Places, Snapshot, pod};
use ipam::{Allocation, Reservation};
use ipnetwork::IpNetwork;
use vcn::{Family, IfName};

use crate::conf::Conf;

/// How often an ADD takes other addresses: because pods without a record use those that it got (all such records are restored at
/// once, so a second time is rare), or because these have more connections than can be deleted in time.
const MOVES: usize = 3;

/// What an attempt may choose from.
struct Choice<'a> {
    source: Source<'a>,
    /// Whether addresses may be given back for better ones. After some attempts a pod starts although old connections of its
    /// address remain, because that is better than no pod.
    is_choosy: bool,
}

/// Why there is no network.
struct AddFailure {
    error: Error,
    /// Set if the pod may get other addresses.
    problem: Option<AddressProblem>,
}

/// A problem with the addresses that were reserved for a pod.
enum AddressProblem {
    /// Another pod has one of them.
    Taken,
    /// The host does not have their VNIC's link, or it is down: what to note. An agent raises a
    /// link that is down, and the pools soon lack one that is gone.
    Link { link: IfName, note: String },
    /// The kernel has so many connections of the previous pod that there was no time to delete them all.
    Remembered,
}

impl From<Error> for AddFailure {
    fn from(error: Error) -> Self {
        Self { error, problem: None }
    }
}

pub(crate) fn add(request: &AddRequest<Conf>, report: &mut Report) -> Result<AddResult, Error> {
    let mut places = attachment::enter(&request.netns)?;
    report.mark("netns");
    let node = Node::open().map_err(|error| failure::of_ipam(&error))?;
    let pools = node.pools().map_err(|error| failure::of_ipam(&error))?;
    report.mark("pools");

    let _lock = node.store.attachment(&request.key).map_err(|error| failure::of_ipam(&error))?;
    // Links of VNICs that are skipped, and the error of the first.
    let (mut avoided, mut first, mut moves) = (Vec::new(), None::<Error>, 0);
    loop {
        let source = Source { pools: &pools, avoided: &avoided };
        let choice = Choice { source, is_choosy: moves < MOVES };
        let failed = match attempt(request, &mut places, &node, &choice, report) {
            Ok(result) => return Ok(result),
            Err(failed) => failed,
        };
        match failed.problem {
            Some(AddressProblem::Link { link, note }) if !avoided.contains(&link) => {
                report.note(format!("{note}: its VNIC is skipped"));
                avoided.push(link);
                first.get_or_insert(failed.error);
            }
            Some(AddressProblem::Taken) if moves < MOVES => {
                moves += 1;
                node.rebuild_record(Some(&pools), Some(&request.key), report)?;
            }
            Some(AddressProblem::Remembered) if moves < MOVES => moves += 1,
            // Too few addresses may be left because VNICs were skipped.
            _ => {
                return Err(match first {
                    Some(first) => first.with_details(format!("nor by another VNIC: {}", failed.error)),
                    None => failed.error,
                });
            }
        }
        report.no_addresses();
    }
}

fn attempt(
    request: &AddRequest<Conf>,
    places: &mut Places,
    node: &Node,
    choice: &Choice<'_>,
    report: &mut Report,
) -> Result<AddResult, AddFailure> {
    let ends = attachment::ends(&request.key);
    let reservation = attachment::reserve(node, choice.source, &asked(request, &ends, places), report)?;
    let allocation = &reservation.allocation;
    report.addresses(&allocation.addresses);
    if let Some(rested) = reservation.rested {
        report.note(format!(
            "the address had rested only {} s of its cooldown: the pool is nearly empty",
            rested.as_secs()
        ));
    }
    report.mark("ipam");
    // Usually the agent has deleted them already.
    let forgotten = attachment::forget(reservation.unforgotten.iter().copied());
    report.note_some(forgotten.problem());
    if matches!(forgotten, DeletionOutcome::Incomplete) && choice.is_choosy {
        let cause = "conntrack still has connections of the pod that had the address before, and there was no time to delete them all; the runtime retries";
        let error = Error::new(ErrorCode::TRY_AGAIN_LATER, cause);
        let error = attachment::give_up(&request.key, allocation, error, node, report);
        return Err(AddFailure { error, problem: Some(AddressProblem::Remembered) });
    }

    let network = attachment::network(ends, allocation, Some(choice.source.pools), request.conf.mtu);
    let built = build(&network, places, &reservation, report);
    let committed =
        built.and_then(|()| node.store.commit(&request.key).map_err(|error| failure::of_ipam(&error).into()));
    report.mark("commit");
    match committed {
        Ok(()) => Ok(success(&network, request).into()),
        Err(AddFailure { error, .. }) if reservation.is_settled() => Err(error.into()),
        Err(AddFailure { error, problem }) => {
            Err(AddFailure { error: attachment::give_up(&request.key, allocation, error, node, report), problem })
        }
    }
}

/// Makes the network.
fn build(
    network: &PodNetwork,
    places: &mut Places,
    reservation: &Reservation,
    report: &mut Report,
) -> Result<(), AddFailure> {
    // The kernel would take all of it, and forward nothing.
    if !reservation.is_settled()
        && let Some(link) = lowered(network, places)
    {
        let note = format!("link {link} is down");
        let msg = format!(
            "link {link}, the VNIC's of the pod's address, is down; `ip link set {link} up` on the node, or find the program that lowers it"
        );
        let problem = Some(AddressProblem::Link { link, note });
        return Err(AddFailure { error: Error::new(code::STEP_FAILED, msg), problem });
    }
    let held = || network.addresses.iter().map(|pod| pod.address).collect();
    let observe = |places: &mut Places| pod::observe(&network.ends, held(), places);
    let observed = if reservation.existing { observe(places) } else { Ok(Vec::new()) };
    let observed = observed.map_err(|error| failure::of_datapath(&error))?;
    let made = make(&pod::desired(network), &observed, reservation, observe, places);
    report.mark("network");
    made.map_err(|error| explained(network, &error, places))
}

/// A link of the addresses' VNICs that is there and down. One question for each, and as a rule both families have one VNIC.
fn lowered(network: &PodNetwork, places: &mut Places) -> Option<IfName> {
    let mut links: Vec<&IfName> = network.addresses.iter().map(|pod| &pod.vnic_link).collect();
    links.dedup();
    links.into_iter().find(|link| places.is_down(link)).cloned()
}

/// What it means for the pod's addresses that its network could not be made.
fn explained(network: &PodNetwork, error: &datapath::Error, places: &mut Places) -> AddFailure {
    let mut links = network.addresses.iter().map(|pod| &pod.vnic_link);
    let problem = if error.is_not_found() {
        let absent = links.find(|link| !places.has_link(link)).cloned();
        absent.map(|link| AddressProblem::Link { note: format!("the host has no link {link}"), link })
    } else if error.is_already_exists() {
        match has_anothers(network, places) {
            Ok(taken) => taken.then_some(AddressProblem::Taken),
            Err(error) => return error.into(),
        }
    } else {
        None
    };
    AddFailure { error: failure::of_datapath(error), problem }
}

/// Whether a route leads to one of the network's addresses by another pod's link.
fn has_anothers(network: &PodNetwork, places: &mut Places) -> Result<bool, Error> {
    let host = Snapshot::of_host(places).map_err(|error| failure::of_datapath(&error))?;
    let ours = |address: IpAddr| network.addresses.iter().any(|pod| pod.address == address);
    Ok(pod::owners(&host).iter().any(|owner| owner.link != network.ends.host && ours(owner.address)))
}

fn asked(request: &AddRequest<Conf>, ends: &LinkEnds, places: &Places) -> Allocation {
    Allocation {
        pod: attachment::pod_of(&request.args),
        netns: attachment::netns_of(&request.netns, places),
        mtu: request.conf.mtu,
        ..Allocation::requested(request.key.clone(), ends.host.clone())
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
