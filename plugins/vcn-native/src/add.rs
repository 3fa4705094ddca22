//! ADD: reserve, build, commit. Whatever fails, what was done is undone before the error is answered.

mod offer;

use std::net::IpAddr;

use attachment::{DeletionOutcome, Node, Report, Source, code, failure};
use cni::{AddRequest, AddResult, Error, ErrorCode, Interface, Ip, Route, Success};
use datapath::pod::{LinkEnds, PodNetwork};
use datapath::{Object, Place, Places, Snapshot, apply, dismantle, plan, pod};
use ipam::Allocation;
use ipnetwork::IpNetwork;
use vcn::{Family, IfName};

use crate::conf::Conf;
use offer::{AddressProblem, Offer};

/// How a try to make a network ended.
enum Attempt {
    Made(AddResult),
    /// Other addresses may do. Nothing was left.
    Void(Error, AddressProblem),
}

pub(crate) fn add(request: &AddRequest<Conf>, report: &mut Report) -> Result<AddResult, Error> {
    let mut places = attachment::enter(&request.netns)?;
    report.mark("netns");
    let node = Node::open().map_err(|error| failure::of_ipam(&error))?;
    let pools = node.pools().map_err(|error| failure::of_ipam(&error))?;
    report.mark("pools");

    let _lock = node.store.attachment(&request.key).map_err(|error| failure::of_ipam(&error))?;
    let mut offer = Offer::new(&pools);
    loop {
        let (error, problem) = match attempt(request, &mut places, &node, &offer, report) {
            Ok(Attempt::Made(result)) => return Ok(result),
            Ok(Attempt::Void(error, problem)) => (error, problem),
            Err(error) => return Err(offer.explain(error)),
        };
        offer.learn(&problem, error)?;
        match problem {
            AddressProblem::Taken => node.rebuild_record(Some(&pools), Some(&request.key), report)?,
            AddressProblem::Absent(link) => {
                report.note(format!("the host has no link {link}: its VNIC is passed over"))
            }
            AddressProblem::Down(link) => report.note(format!("link {link} is down: its VNIC is passed over")),
            AddressProblem::Remembered => {}
        }
        report.no_addresses();
    }
}

fn attempt(
    request: &AddRequest<Conf>,
    places: &mut Places,
    node: &Node,
    offer: &Offer<'_>,
    report: &mut Report,
) -> Result<Attempt, Error> {
    let ends = attachment::ends(&request.key);
    let from = Source { pools: offer.pools, avoided: &offer.avoided };
    let reservation = attachment::reserve(node, from, &asked(request, &ends, places), report)?;
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
    let forgotten = attachment::forget(reservation.unforgotten);
    report.note_some(forgotten.problem());
    if matches!(forgotten, DeletionOutcome::Incomplete) && offer.has_patience() {
        let error = Error::new(ErrorCode::TRY_AGAIN_LATER, "the address has connections of its last owner");
        return Ok(Attempt::Void(
            attachment::give_up(&request.key, &allocation, error, node, report),
            AddressProblem::Remembered,
        ));
    }

    let network = attachment::network(ends, &allocation, Some(offer.pools), request.conf.mtu);
    let left = Leftover { allocation: &allocation, existing: reservation.existing, settled };
    let committed = || node.store.commit(&request.key).map_err(|error| AddFailure::Failed(failure::of_ipam(&error)));
    let built = build(&network, places, &left, report).and_then(|()| committed());
    report.mark("commit");
    match built {
        Ok(()) => Ok(Attempt::Made(success(&network, request).into())),
        Err(AddFailure::Failed(error) | AddFailure::Void(error, _)) if settled => Err(error),
        Err(AddFailure::Void(error, problem)) => {
            Ok(Attempt::Void(attachment::give_up(&request.key, &allocation, error, node, report), problem))
        }
        Err(AddFailure::Failed(error)) => Err(attachment::give_up(&request.key, &allocation, error, node, report)),
    }
}

/// Why there is no network.
enum AddFailure {
    Failed(Error),
    /// Others may do.
    Void(Error, AddressProblem),
}

impl From<Error> for AddFailure {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// What earlier ADDs of this attachment may have left.
struct Leftover<'a> {
    allocation: &'a Allocation,
    /// One reserved the addresses.
    existing: bool,
    /// One succeeded.
    settled: bool,
}

/// Makes the network. Nothing is looked at first, for a fresh attachment has nothing; only when the kernel says that
/// something is there already, or the allocation was, is the remainder of an earlier ADD taken over or cleared away. What
/// is another's is left alone, whatever records say: it may be a running pod's.
fn build(
    network: &PodNetwork,
    places: &mut Places,
    left: &Leftover<'_>,
    report: &mut Report,
) -> Result<(), AddFailure> {
    // The kernel would take all of it, and forward nothing.
    if !left.settled
        && let Some(link) = lowered(network, places)
    {
        let msg = format!(
            "link {link}, the VNIC's of the pod's address, is down; `ip link set {link} up` on the node, or see who lowers it"
        );
        return Err(AddFailure::Void(Error::new(code::STEP_FAILED, msg), AddressProblem::Down(link)));
    }
    let desired = pod::desired(network);
    let observed = if left.existing { left.observe(places)? } else { Vec::new() };
    // A host end whose other end is elsewhere belongs to an earlier namespace of this attachment.
    let severed = !observed.is_empty() && !observed.iter().any(|(place, _)| *place == Place::Pod);
    let outcome = match severed {
        true => None,
        false => match apply(&plan(&desired, &observed), places) {
            // What there is of it is a pod in use.
            Err(error) if left.settled && !observed.is_empty() => return Err(failure::of_datapath(&error).into()),
            Err(error) if left.existing || error.is_already_exists() => Some(error),
            Err(error) => return Err(trouble(network, &error, places)?),
            Ok(()) => {
                report.mark("network");
                return Ok(());
            }
        },
    };
    let own = left.observe(places)?;
    dismantle(&plan(&[], &own), places);
    let again = match outcome {
        Some(error) if own.is_empty() => Err(error),
        _ => apply(&plan(&desired, &[]), places),
    };
    report.mark("network");
    match again {
        Ok(()) => Ok(()),
        Err(error) => Err(trouble(network, &error, places)?),
    }
}

/// A link of the addresses' VNICs that is there and down. One question for each, and as a rule both families have one VNIC.
fn lowered(network: &PodNetwork, places: &mut Places) -> Option<IfName> {
    let mut links: Vec<&IfName> = network.addresses.iter().map(|pod| &pod.vnic_link).collect();
    links.dedup();
    links.into_iter().find(|link| places.is_down(link)).cloned()
}

/// What it means for the pod's addresses that its network could not be made.
fn trouble(network: &PodNetwork, error: &datapath::Error, places: &mut Places) -> Result<AddFailure, Error> {
    let problem = if error.is_not_found() {
        let mut links = network.addresses.iter().map(|pod| &pod.vnic_link);
        links.find(|link| !places.has_link(link)).cloned().map(AddressProblem::Absent)
    } else if error.is_already_exists() && has_anothers(network, places)? {
        Some(AddressProblem::Taken)
    } else {
        None
    };
    let error = failure::of_datapath(error);
    Ok(match problem {
        Some(problem) => AddFailure::Void(error, problem),
        None => AddFailure::Failed(error),
    })
}

/// Whether a route leads to one of the network's addresses by another pod's link.
fn has_anothers(network: &PodNetwork, places: &mut Places) -> Result<bool, Error> {
    let host = Snapshot::of_host(places).map_err(|error| failure::of_datapath(&error))?;
    let ours = |address: IpAddr| network.addresses.iter().any(|pod| pod.address == address);
    Ok(pod::owners(&host).iter().any(|owner| owner.link != network.ends.host && ours(owner.address)))
}

impl Leftover<'_> {
    /// What there is of this attachment.
    fn observe(&self, places: &mut Places) -> Result<Vec<(Place, Object)>, Error> {
        attachment::observe(&self.allocation.key, Some(self.allocation), places)
    }
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
