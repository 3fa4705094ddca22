//! One interface: reserve, build, commit. Whatever fails, what was done is undone before the error is answered.

use attachment::{Node, Report, Source, failure};
use cni::{AddRequest, AttachmentKey, Error, ErrorCode};
use datapath::pod::{self, ExtraNetwork};
use datapath::{Places, apply};
use ipam::{Allocation, InterfaceRecord, Pools, Reservation};
use netlink::{Link, RouteFilter, Socket};
use vcn::{AttachMode, ExclusiveLink, Family, IfName, PerFamily, TableId};

use crate::conf::Conf;
use crate::key_of;
use crate::offer::VnicGrant;

/// How often addresses are exchanged that another pod turns out to have, which is on no record. All of them are then taken in at
/// once, so a second time is rare already.
const MOVES: usize = 3;

/// Creates the interfaces of one ADD.
pub(crate) struct InterfaceBuilder<'a> {
    pub(crate) request: &'a AddRequest<Conf>,
    pub(crate) node: &'a Node,
    pub(crate) pools: &'a Pools,
    pub(crate) places: &'a mut Places,
    pub(crate) report: &'a mut Report,
}

/// An interface that ADD created.
pub(crate) struct CreatedInterface {
    pub(crate) network: ExtraNetwork,
    /// An earlier ADD had created it.
    pub(crate) is_repeated: bool,
    key: AttachmentKey,
    allocation: Allocation,
}

impl InterfaceBuilder<'_> {
    /// Creates one interface.
    ///
    /// # Errors
    /// When there is none, and nothing of it is left.
    pub(crate) fn build(&mut self, one: &VnicGrant<'_>, name: IfName) -> Result<CreatedInterface, Error> {
        let key = key_of(&self.request.key.container_id, name)?;
        let _lock = self.node.store.attachment(&key).map_err(|error| failure::of_ipam(&error))?;
        let mut moves = 0;
        loop {
            let reservation = self.reserve(one, &key)?;
            let is_repeated = reservation.is_settled();
            attachment::forget(reservation.unforgotten.iter().copied());
            let built = self.build_network(one, &reservation).and_then(|network| {
                self.node.store.commit(&key).map_err(|error| failure::of_ipam(&error))?;
                Ok(network)
            });
            self.report.mark("network");
            let allocation = reservation.allocation;
            match built {
                Ok(network) => {
                    // The host announces what is behind it; a VNIC's own address is known.
                    if network.device.is_none() {
                        self.report.addresses(&allocation.addresses);
                    }
                    return Ok(CreatedInterface { network, is_repeated, key, allocation });
                }
                Err(error) if is_repeated => return Err(error),
                Err(error) => {
                    let taken = error.code == attachment::code::INTERFACE_EXISTS && moves < MOVES;
                    let error = self.give_up(&key, &allocation, error);
                    if !taken || allocation.exclusive.is_some() {
                        return Err(error);
                    }
                    moves += 1;
                    self.node.rebuild_record(Some(self.pools), Some(&key), self.report)?;
                }
            }
        }
    }

    /// Removes an interface, because another one cannot be created.
    pub(crate) fn undo(&mut self, created: &CreatedInterface, error: Error) -> Error {
        match self.node.store.attachment(&created.key) {
            Ok(_lock) => self.give_up(&created.key, &created.allocation, error),
            Err(busy) => error.with_details(format!("{} is left for DEL", created.key)).caused_by(&busy),
        }
    }

    fn give_up(&mut self, key: &AttachmentKey, allocation: &Allocation, error: Error) -> Error {
        attachment::give_up(key, allocation, error, self.node, self.report)
    }

    /// Reserves addresses of the VNIC. Of one that a single pod can have, a pod that is gone without a DEL lets go.
    fn reserve(&mut self, one: &VnicGrant<'_>, key: &AttachmentKey) -> Result<Reservation, Error> {
        let view = self.pools.only(one.vnic, &one.requested.ips);
        let (attached, exclusive) = recorded(one, self.request);
        let asked = Allocation {
            pod: attachment::pod_of(&self.request.args),
            netns: attachment::netns_of(&self.request.netns, self.places),
            attached: Some(attached),
            exclusive,
            ..Allocation::requested(key.clone(), attachment::ends(key).host)
        };
        let source = Source { pools: &view, avoided: &[] };
        let reserved = attachment::reserve(self.node, source, &asked, self.report);
        match reserved {
            Err(error) if error.code == attachment::code::NO_ADDRESS => {}
            Ok(reservation) if !matches(&reservation, one) => {
                let msg = format!("{key} is on another VNIC or has other addresses by an earlier ADD; delete the pod");
                return Err(Error::new(ErrorCode::TRY_AGAIN_LATER, msg));
            }
            reserved => return reserved,
        }
        if one.offer.mode == AttachMode::Exclusive && self.end_holder(one)? {
            return attachment::reserve(self.node, source, &asked, self.report);
        }
        let name = &one.requested.vnic;
        Err(Error::new(
            ErrorCode::TRY_AGAIN_LATER,
            format!(
                "VNIC {name} has no free address for this pod: delete a pod that uses it (`oke-node-agent attachments`), or raise ipv4Count or ipv6Count of its VnicAttachment"
            ),
        ))
    }

    /// Ends the attachment of a pod that has an Exclusive VNIC and is gone: its namespace is. Answers whether it was ended.
    fn end_holder(&mut self, one: &VnicGrant<'_>) -> Result<bool, Error> {
        let wrap = |error| failure::of_ipam(&error);
        let (held, _) = self.node.store.read_sound().map_err(wrap)?;
        let holds = |it: &&Allocation| it.addresses.iter().any(|held| held.vnic_id == one.vnic.vnic_id);
        let Some(holder) = held.allocations.iter().find(holds) else { return Ok(false) };
        let lives = holder.netns.as_ref().and_then(attachment::open_netns).is_some();
        let name = &one.requested.vnic;
        let pod = holder.pod.as_ref().map_or_else(
            || format!("container {}", holder.key.container_id),
            |pod| format!("pod {}/{}", pod.namespace, pod.name),
        );
        let refused = || {
            Error::new(
                ErrorCode::TRY_AGAIN_LATER,
                format!("VNIC {name} is Exclusive, and {pod} has it; delete that pod, or run this one on another node"),
            )
        };
        let lock = self.node.store.try_attachment(&holder.key).map_err(wrap)?;
        let Some(_lock) = lock.filter(|_| !lives) else { return Err(refused()) };
        if self.node.store.find(&holder.key).map_err(wrap)?.as_ref() != Some(holder) {
            return Err(refused());
        }
        let had = attachment::take_down(&holder.key, Some(holder), self.node, self.report)?;
        self.node.release(&holder.key, &had, self.report).map_err(wrap)?;
        self.report.note(format!("{pod}, which had VNIC {name}, is gone without a DEL: ended"));
        Ok(true)
    }

    /// Makes the network.
    fn build_network(&mut self, one: &VnicGrant<'_>, reservation: &Reservation) -> Result<ExtraNetwork, Error> {
        let wrap = |error: datapath::Error| failure::of_datapath(&error);
        let Some(mut network) = attachment::network_of(&reservation.allocation, Some(self.pools)) else {
            let msg =
                format!("the record of {} was lost and written again; delete the pod", reservation.allocation.key);
            return Err(Error::new(attachment::code::NOT_ALLOCATED, msg));
        };
        let places = &mut *self.places;
        let observed =
            if reservation.existing { pod::observe_extra(&network, places).map_err(wrap)? } else { Vec::new() };
        if observed.is_empty() {
            usable(one, &network)?;
        }
        network.taken = pod::taken_routes(&network, places).map_err(wrap)?;
        for step in pod::own_ways(&network, places).map_err(wrap)? {
            // A route that cannot be copied leaves the pod's own interface as it was before.
            if let Err(error) = apply(std::slice::from_ref(&step), places) {
                self.report.note(error.to_string());
            }
        }
        let observe = |places: &mut Places| pod::observe_extra(&network, places);
        attachment::make(&network.desired(), &observed, reservation, observe, places).map_err(wrap)?;
        Ok(network)
    }
}

/// What is recorded of an interface in addition to its addresses.
fn recorded(one: &VnicGrant<'_>, request: &AddRequest<Conf>) -> (InterfaceRecord, Option<ExclusiveLink>) {
    let VnicGrant { vnic, offer, requested } = one;
    let attached = InterfaceRecord {
        network: request.config.name.clone(),
        vnic: offer.name.clone(),
        subnets: offer.subnets.clone(),
        routes: offer.routes.clone(),
        default_route: requested.default_route,
    };
    let router = |family| vnic.families.of(family).map(|pool| pool.router);
    let exclusive = (offer.mode == AttachMode::Exclusive).then(|| ExclusiveLink {
        link: vnic.link.clone(),
        mac: vnic.mac,
        vlan: offer.vlan,
        routers: PerFamily { ipv4: router(Family::Ipv4), ipv6: router(Family::Ipv6) },
        identity: None,
        settings: None,
    });
    (attached, exclusive)
}

/// Whether what an earlier ADD reserved is what this one asks for.
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
    if !is_link_of(one, &found, moves) {
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
fn is_link_of(one: &VnicGrant<'_>, found: &Link, moves: bool) -> bool {
    let (mac, kind) = (one.vnic.mac, &one.offer.link_kind);
    let has_its_mac = one.vnic.link_has_mac && one.offer.vlan.is_none();
    match (moves || has_its_mac, found.vlan) {
        (true, None) => found.is_nic_of(mac, kind),
        (true, Some(_)) => found.kind.as_deref() == kind.name() && found.mac == Some(mac),
        (false, _) => found.kind.as_deref() == kind.name(),
    }
}
