//! Doing what a plan says. No opinions here: every decision is in the steps.

use std::os::fd::AsFd;

use netlink::{Address, LinkChange, Neighbour, NewLink, Peer, Result, Route};
use vcn::{IfName, PROTOCOL};

use crate::{
    AddressSpec, Change, Error, Failure, LinkKind, LinkSpec, NeighbourSpec, Object, Place, Places, RouteSpec, Step,
    SysctlSpec, VethPeer,
};

mod moved;

pub(crate) use moved::{restore, take_from_pod};

/// Takes the steps in order. On success all of them are done. On failure none is: those before the failed one have been
/// undone, last first. The error has what could not be undone.
///
/// # Errors
/// [`Error::Apply`] with the first failure.
pub fn apply(steps: &[Step], places: &mut Places) -> Result<(), Error> {
    for (done, step) in steps.iter().enumerate() {
        if let Err(source) = perform(step, places) {
            let left_over = undo(steps.iter().take(done), places);
            return Err(Error::Apply { step: Box::new(step.clone()), source, left_over });
        }
    }
    Ok(())
}

/// Takes every step whatever becomes of the others, for taking a network down: what is gone already is fine. Returns
/// what failed.
pub fn dismantle(steps: &[Step], places: &mut Places) -> Vec<Failure> {
    steps.iter().filter_map(|step| tolerant(step, places)).collect()
}

fn undo<'a>(steps: impl DoubleEndedIterator<Item = &'a Step>, places: &mut Places) -> Vec<Failure> {
    steps.rev().filter_map(|step| tolerant(&step.undo(), places)).collect()
}

fn tolerant(step: &Step, places: &mut Places) -> Option<Failure> {
    match perform(step, places) {
        Err(source) if !(source.is_not_found() && matches!(step.change, Change::Delete(_))) => {
            Some(Failure { step: step.clone(), source })
        }
        _ => None,
    }
}

fn perform(step: &Step, places: &mut Places) -> Result<()> {
    let place = step.place;
    match &step.change {
        Change::Add(Object::Link(link)) => add_link(place, link, places),
        Change::Add(Object::Sysctl(setting)) | Change::Replace { to: Object::Sysctl(setting), .. } => {
            set(place, setting, places)
        }
        Change::Add(Object::NftTable(all)) | Change::Replace { to: Object::NftTable(all), .. } => {
            match all.tables.as_slice() {
                [] => Ok(()),
                tables => netlink::nft::NftSocket::open()?.replace_tables(tables),
            }
        }
        Change::Delete(Object::NftTable(_)) => netlink::nft::NftSocket::open()?.delete_tables(vcn::NFT_TABLE),
        // A driver may refuse an address although it is the one it has.
        Change::Replace { from: Object::Link(have), to: Object::Link(link) } if have.mac == link.mac => {
            change_link(place, &LinkSpec { mac: None, ..link.clone() }, places)
        }
        Change::Replace { to: Object::Link(link), .. } => change_link(place, link, places),
        // Neither can be deleted; a plan never requests it, the undo of an addition does.
        Change::Delete(Object::Sysctl(_)) => Ok(()),
        Change::Delete(Object::Link(link)) => delete_link(place, link, places),
        Change::Add(object) => write(place, object, Verb::Add, places),
        Change::Delete(object) => write(place, object, Verb::Delete, places),
        Change::Replace { to, .. } => write(place, to, Verb::Replace, places),
    }
}

fn add_link(place: Place, link: &LinkSpec, places: &mut Places) -> Result<()> {
    let mut new = match &link.kind {
        LinkKind::VethPeer | LinkKind::Device => return change_link(place, link, places),
        LinkKind::Moved(device) => return moved::into_pod(link, device, places),
        LinkKind::Veth(peer) => {
            add_pair(link, peer, places)?;
            // From its first packet on.
            ignore_router_advertisements(place, &link.name, places)?;
            // What the kernel gives no end at birth, and the peer of a pair not. A hardened host forwards nothing from new links.
            let mut changes = changes(&LinkSpec { mac: None, mtu: None, ..link.clone() });
            changes.push(LinkChange::ForwardIpv4);
            return change(place, &link.name, &changes, places);
        }
        LinkKind::Vlan { parent, tag } => {
            let parent = places.host.index_of(parent)?;
            NewLink::new(link.name.clone(), netlink::LinkKind::Vlan { parent, tag: *tag })
        }
    };
    new.mac = link.mac;
    new.mtu = link.mtu;
    new.up = link.up;
    // One message makes it where it belongs, on a port of the host's.
    let Places { host, pod, .. } = places;
    new.netns = pod.as_ref().filter(|_| place == Place::Pod).map(|pod| pod.netns.as_fd());
    host.add_link(&new)?;
    // The kernel takes no alias at birth. After a kill before this, it is found by its tag and MAC.
    match link.alias.clone() {
        Some(alias) => change(place, &link.name, &[LinkChange::Alias(alias)], places),
        None => Ok(()),
    }
}

/// One message makes both ends and raises the pod's. The pod's end is requested in its own namespace, with the host's as the
/// peer. So only the peer is born down, and an `eth0` of the host does not collide with the pod's.
fn add_pair(link: &LinkSpec, peer: &VethPeer, places: &mut Places) -> Result<()> {
    let Places { host, pod, .. } = places;
    let mut outside = Peer { name: link.name.clone(), mac: link.mac, mtu: link.mtu, netns: None };
    let pod = pod.as_mut().map(|pod| (&mut pod.socket, &pod.home));
    let socket = match pod {
        Some((socket, home)) => {
            outside.netns = Some(home.as_fd());
            socket
        }
        None => host,
    };
    let mut inside = NewLink::new(peer.name.clone(), netlink::LinkKind::Veth(outside));
    (inside.mac, inside.mtu, inside.up) = (Some(peer.mac), link.mtu, true);
    socket.add_link(&inside)
}

/// A kernel without IPv6 has no such setting, and ignores advertisements anyway.
fn ignore_router_advertisements(place: Place, link: &IfName, places: &Places) -> Result<()> {
    let SysctlSpec { key, value } = SysctlSpec::ignoring_router_advertisements(link);
    match places.sysctl(place, |sysctls| sysctls.overwrite(&key, &value)) {
        Err(error) if error.is_not_found() => Ok(()),
        written => written,
    }
}

fn change_link(place: Place, link: &LinkSpec, places: &mut Places) -> Result<()> {
    change(place, &link.name, &changes(link), places)
}

fn changes(link: &LinkSpec) -> Vec<LinkChange<'static>> {
    let mut changes = Vec::with_capacity(4);
    changes.extend(link.mac.map(LinkChange::Mac));
    changes.extend(link.mtu.map(LinkChange::Mtu));
    changes.extend(link.alias.clone().map(LinkChange::Alias));
    changes.push(if link.up { LinkChange::Up } else { LinkChange::Down });
    changes
}

fn change(place: Place, link: &IfName, changes: &[LinkChange<'_>], places: &mut Places) -> Result<()> {
    places.socket(place).map_or(Ok(()), |socket| socket.change_link_named(link, changes))
}

fn delete_link(place: Place, link: &LinkSpec, places: &mut Places) -> Result<()> {
    match link.kind {
        // It goes with the host end, and a device is never removed.
        LinkKind::VethPeer | LinkKind::Device => Ok(()),
        LinkKind::Moved(ref device) => moved::to_host(link, device, places),
        LinkKind::Veth(_) | LinkKind::Vlan { .. } => {
            let skips_waiting = places.skips_waiting && place == Place::Host;
            places.socket(place).map_or(Ok(()), |socket| match skips_waiting {
                true => socket.unlist_link_named(&link.name),
                false => socket.delete_link_named(&link.name),
            })
        }
    }
}

fn set(place: Place, setting: &SysctlSpec, places: &Places) -> Result<()> {
    places.sysctl(place, |sysctls| sysctls.write(&setting.key, &setting.value)).map(|_changed| ())
}

#[derive(Clone, Copy)]
enum Verb {
    Add,
    Replace,
    Delete,
}

fn write(place: Place, object: &Object, verb: Verb, places: &mut Places) -> Result<()> {
    // A pod that is gone took everything in it along.
    let Some(socket) = places.socket(place) else { return Ok(()) };
    let index = object.carrier().map(|link| socket.index_of(link)).transpose()?.unwrap_or(0);
    match object {
        Object::Address(AddressSpec { address, .. }) => {
            let mut address = Address::new(index, *address);
            address.nodad = true;
            // In a pod, the plan adds the route to the subnet itself, if the pod may have one.
            address.noprefixroute = place == Place::Pod;
            match verb {
                Verb::Add | Verb::Replace => socket.replace_address(&address),
                Verb::Delete => socket.delete_address(&address),
            }
        }
        Object::Route(route) => {
            let route = kernel_route(route, index);
            match verb {
                Verb::Add => socket.add_route(&route),
                Verb::Replace => socket.replace_route(&route),
                Verb::Delete => socket.delete_route(&route),
            }
        }
        Object::Rule(rule) => match verb {
            Verb::Add | Verb::Replace => match socket.add_rule(rule) {
                // The kernel calls two rules the same only when everything about them is.
                Err(error) if error.is_already_exists() => Ok(()),
                other => other,
            },
            Verb::Delete => socket.delete_rule(rule),
        },
        Object::Neighbour(NeighbourSpec { address, mac, .. }) => {
            let neighbour = match mac {
                Some(mac) => Neighbour::permanent(index, *address, *mac),
                None => Neighbour::proxy(index, *address),
            }
            .by(PROTOCOL);
            match verb {
                Verb::Add | Verb::Replace => socket.replace_neighbour(&neighbour),
                Verb::Delete => socket.delete_neighbour(&neighbour),
            }
        }
        // Handled by `perform`.
        Object::Link(_) | Object::Sysctl(_) | Object::NftTable(_) => Ok(()),
    }
}

fn kernel_route(route: &RouteSpec, oif: u32) -> Route {
    let mut kernel = Route::new(route.destination, oif, route.table, PROTOCOL);
    kernel.gateway = route.via;
    // IPv4 wants a next hop that a route already covers, or our word for it.
    kernel.onlink = route.via.is_some_and(|via| via.is_ipv4());
    kernel.scope_link = route.via.is_none() && route.destination.is_ipv4();
    kernel
}
