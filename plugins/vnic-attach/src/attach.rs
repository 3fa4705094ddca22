//! One interface: what it is, and whether its VNIC can be used. The protocol is `attachment`'s.

use attachment::{Access, Added, Addition, AddressProblem, BuildFailure, Built, Ended, Node, Report, code, failure};
use cni::{AddRequest, AttachmentKey, Error, ErrorCode};
use datapath::pod::{self, ExtraNetwork};
use datapath::{Object, Place, Places, apply};
use ipam::{Allocation, InterfaceRecord, Pools, Reservation};
use netlink::{Link, RouteFilter, Socket};
use vcn::{AttachMode, ExclusiveLink, Family, IfName, PerFamily, TableId};

use crate::conf::Conf;
use crate::key_of;
use crate::offer::VnicGrant;

/// Creates the interfaces of one ADD.
pub(crate) struct InterfaceBuilder<'a> {
    pub(crate) request: &'a AddRequest<Conf>,
    pub(crate) node: &'a Node,
    pub(crate) pools: &'a Pools,
    pub(crate) places: &'a mut Places,
    pub(crate) report: &'a mut Report,
}

impl InterfaceBuilder<'_> {
    /// Creates one interface. A pod that has the VNIC for itself and is gone without a DEL gives it up.
    ///
    /// # Errors
    /// When there is none, and nothing of it is left.
    pub(crate) fn build(&mut self, one: &VnicGrant<'_>, name: IfName) -> Result<Added<ExtraNetwork>, Error> {
        let key = key_of(&self.request.key.container_id, name)?;
        match self.add(one, &key) {
            Err(error) if error.code == code::NO_ADDRESS => {}
            added => return added,
        }
        if one.offer.mode == AttachMode::Exclusive && self.end_holder(one)? {
            return self.add(one, &key);
        }
        let name = &one.requested.vnic;
        Err(Error::new(
            ErrorCode::TRY_AGAIN_LATER,
            format!(
                "VNIC {name} has no free address for this pod: delete a pod that uses it (`oke-node-agent attachments`), or raise ipv4Count or ipv6Count of its VnicAttachment"
            ),
        ))
    }

    fn add(&mut self, one: &VnicGrant<'_>, key: &AttachmentKey) -> Result<Added<ExtraNetwork>, Error> {
        let view = self.pools.only(one.vnic, &one.requested.ips);
        let (attached, exclusive) = recorded(one, self.request)?;
        let request = Allocation {
            pod: attachment::pod_of(&self.request.args),
            netns: attachment::netns_of(&self.request.netns, self.places),
            attached: Some(attached),
            exclusive,
            ..Allocation::requested(key.clone(), attachment::ends(key).host)
        };
        let addition = Addition { pools: self.pools, source: &view, request };
        let (places, pools) = (&mut *self.places, self.pools);
        attachment::add(self.node, &addition, self.report, |reservation, report| {
            if !matches(reservation, one) {
                let msg = format!("{key} is on another VNIC or has other addresses by an earlier ADD; delete the pod");
                return Err(Error::new(ErrorCode::TRY_AGAIN_LATER, msg).into());
            }
            let built = build_network(one, reservation, pools, places, report);
            built.map_err(|error| {
                // By a pod that is on no record. A VNIC that one pod has for itself has no other address.
                let is_taken = error.code == code::INTERFACE_EXISTS && reservation.allocation.exclusive.is_none();
                BuildFailure { error, problem: is_taken.then_some(AddressProblem::Taken) }
            })
        })
    }

    /// Removes an interface, because another one cannot be created.
    pub(crate) fn undo(&mut self, created: &Added<ExtraNetwork>, error: Error) -> Error {
        attachment::give_up(&created.allocation.key, error, self.node, Access::Wait, self.report)
    }

    /// Ends the attachment of a pod that has an Exclusive VNIC and is gone: its namespace is, or a DEL came. Returns whether it was
    /// ended.
    fn end_holder(&mut self, one: &VnicGrant<'_>) -> Result<bool, Error> {
        let (held, _) = self.node.store.read_sound().map_err(|error| failure::of_ipam(&error))?;
        let holds = |it: &&Allocation| it.addresses.iter().any(|held| held.vnic_id == one.vnic.vnic_id);
        let Some(holder) = held.allocations.iter().find(holds) else { return Ok(false) };
        let is_gone = || holder.netns.as_ref().and_then(attachment::open_netns).is_none();
        let is_due =
            |found: Option<&Allocation>| found == Some(holder) && (holder.unreturned_since.is_some() || is_gone());
        let (name, pod) = (&one.requested.vnic, holder.holder());
        let refused = |why: String| Err(Error::new(ErrorCode::TRY_AGAIN_LATER, format!("VNIC {name} {why}")));
        let missing = |left: &Allocation| {
            format!("cannot be used: {}; run this pod on another node", attachment::link_missing(left))
        };
        match attachment::end(&holder.key, self.node, Access::Try, is_due, self.report)? {
            Ended::Freed { .. } => {
                self.report.note(format!("pod {pod}, which had VNIC {name}, is gone without a DEL: ended"));
                Ok(true)
            }
            Ended::LinkMissing(left) => refused(missing(&left)),
            // The agent tries the same now.
            Ended::Busy if holder.unreturned_since.is_some() => refused(missing(holder)),
            Ended::Busy | Ended::Spared => {
                refused(format!("is Exclusive, and pod {pod} has it; delete that pod, or run this one on another node"))
            }
        }
    }
}

fn build_network(
    one: &VnicGrant<'_>,
    reservation: &Reservation,
    pools: &Pools,
    places: &mut Places,
    report: &mut Report,
) -> Result<Built<ExtraNetwork>, Error> {
    let wrap = |error: datapath::Error| failure::of_datapath(&error);
    let Some(mut network) = attachment::network_of(&reservation.allocation, Some(pools)) else {
        let msg = format!("the record of {} was lost and written again; delete the pod", reservation.allocation.key);
        return Err(Error::new(code::NOT_ALLOCATED, msg));
    };
    let observed = if reservation.existing { pod::observe_extra(&network, places).map_err(wrap)? } else { Vec::new() };
    if observed.is_empty() {
        usable(one, &network)?;
    }
    network.taken = pod::taken_routes(&network, places).map_err(wrap)?;
    for step in pod::own_ways(&network, places).map_err(wrap)? {
        // A route that cannot be copied leaves the pod's own interface as it was before.
        if let Err(error) = apply(std::slice::from_ref(&step), places) {
            report.note(error.to_string());
        }
    }
    let observe = |places: &mut Places| pod::observe_extra(&network, places);
    attachment::make(&network.desired(), &observed, reservation, observe, places).map_err(wrap)?;
    // A link that a running pod has kept is the recorded one; nothing else that the pod made is.
    let is_kept = reservation.is_settled()
        && observed.iter().any(|(place, object)| match object {
            Object::Link(link) => *place == Place::Pod && link.name == *network.name(),
            _ => false,
        });
    let link = if is_kept { None } else { pod::identify(&network, places).map_err(wrap)? };
    Ok(Built { network, link })
}

/// What is recorded of an interface in addition to its addresses.
fn recorded(
    one: &VnicGrant<'_>,
    request: &AddRequest<Conf>,
) -> Result<(InterfaceRecord, Option<ExclusiveLink>), Error> {
    let VnicGrant { vnic, offer, requested } = one;
    let attached = InterfaceRecord {
        network: request.config.name.clone(),
        vnic: offer.name.clone(),
        subnets: offer.subnets.clone(),
        routes: offer.routes.clone(),
        default_route: requested.default_route,
    };
    if offer.mode == AttachMode::Shared {
        return Ok((attached, None));
    }
    let router = |family| vnic.families.of(family).map(|pool| pool.router);
    let found = Socket::open().and_then(|mut socket| socket.link(&vnic.link));
    let settings = match found {
        Ok(link) => Some(link.settings()).filter(|_| offer.vlan.is_none()),
        // It is in the pod, by an earlier ADD, or nowhere.
        Err(error) if error.is_not_found() => None,
        Err(error) => return Err(failure::of_host(&error)),
    };
    let exclusive = ExclusiveLink {
        link: vnic.link.clone(),
        mac: vnic.mac,
        kind: offer.link_kind.clone(),
        vlan: offer.vlan,
        routers: PerFamily { ipv4: router(Family::Ipv4), ipv6: router(Family::Ipv6) },
        identity: None,
        settings,
    };
    Ok((attached, Some(exclusive)))
}

/// Whether what an earlier ADD reserved is what this one requests.
fn matches(reservation: &Reservation, one: &VnicGrant<'_>) -> bool {
    let held = &reservation.allocation;
    let on_vnic = held.attached.as_ref().is_some_and(|attached| attached.vnic == one.offer.name);
    on_vnic && one.requested.ips.iter().all(|ip| held.addresses.iter().any(|it| it.address == *ip))
}

/// Whether the VNIC's link is there to be used, and the host does not need it.
fn usable(one: &VnicGrant<'_>, network: &ExtraNetwork) -> Result<(), Error> {
    let name = &one.requested.vnic;
    let refused =
        |why: String| Err(Error::new(ErrorCode::TRY_AGAIN_LATER, format!("VNIC {name} cannot be used: {why}")));
    let link = &one.vnic.link;
    let during = |error: netlink::Error| failure::of_host(&error);
    let mut socket = Socket::open().map_err(during)?;
    let found = match socket.link(link) {
        Ok(found) => found,
        Err(error) if error.is_not_found() => return refused(format!("the host has no link {link}")),
        Err(error) => return Err(during(error)),
    };
    let moves = network.device.as_ref().is_some_and(|device| device.vlan.is_none());
    if !is_link_of(one, &found, moves, &mut socket).map_err(during)? {
        let kind = one.offer.link_kind.name().map_or("network card".to_owned(), |kind| format!("{kind} link"));
        let mac = one.vnic.mac;
        return refused(format!("link {link} is not the VNIC's, which is a {kind} with the Ethernet address {mac}"));
    }
    if !moves {
        return if found.up {
            Ok(())
        } else {
            refused(format!("link {link} is down; `ip link set {link} up` on the node"))
        };
    }
    for family in Family::ALL {
        let filter = RouteFilter { table: Some(TableId::MAIN), ..RouteFilter::all(family) };
        let routes = socket.routes(&filter).map_err(during)?;
        if routes.iter().any(|route| route.destination.prefix() == 0 && route.oif == found.index) {
            return refused(format!("the host's default route is by {link}"));
        }
    }
    Ok(())
}

/// Whether a link is the one that is offered, whatever its name. The port under a VLAN link has an address of its own.
fn is_link_of(one: &VnicGrant<'_>, found: &Link, moves: bool, socket: &mut Socket) -> netlink::Result<bool> {
    let (mac, kind) = (one.vnic.mac, &one.offer.link_kind);
    let has_its_mac = one.vnic.link_has_mac && one.offer.vlan.is_none();
    Ok(match (moves || has_its_mac, found.vlan) {
        (true, None) => Link::nics_of(&socket.links()?, mac, kind).any(|nic| nic.index == found.index),
        (true, Some(_)) => found.kind.as_deref() == kind.name() && found.mac == Some(mac),
        (false, _) => found.kind.as_deref() == kind.name(),
    })
}
