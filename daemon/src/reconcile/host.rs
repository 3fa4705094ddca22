//! The host's kernel: read it, plan changes, and apply them in batches that fail on their own, so that a failure of one VNIC
//! affects no other.

mod batches;
mod foreign_routes;

use std::collections::HashSet;
use std::fmt;
use std::net::IpAddr;

use datapath::host::{self, HostNetwork};
use datapath::{Change, Error, Object, Places, Step};
use netlink::{Link, RouteFilter, Socket};
use vcn::{Family, LinkKindName, Ocid, PODS_TABLE, PROTOCOL, RulePriorities, TABLE_BASE, TableId, Vnic};

use crate::decide::host_facts::HostAddress;
use crate::decide::slots::TableReferences;
use crate::facts::condition::Condition;

use batches::batches;

/// Steps that are applied together or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Batch {
    pub part: Part,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// A part of the host's network that can fail on its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// One of our objects, no longer desired.
    Stale,
    /// Settings and rules of the whole host.
    Base,
    Vnic(Ocid),
    /// Our nft tables. User-mode kernels have none: pods then have no DNS at the link-local address.
    Nft,
}

#[derive(Debug)]
pub(crate) struct HostPlan {
    /// The steps, in order.
    pub batches: Vec<Batch>,
    /// Objects that are not wanted and stay.
    pub spared: Vec<Object>,
    /// Conditions of foreign routes in the table of pods.
    pub conditions: Vec<Condition>,
}

pub(crate) fn links() -> Result<Vec<Link>, netlink::Error> {
    Socket::open()?.links()
}

/// The host's links. If several network cards (`nics`) have the Ethernet address of a VNIC, links with an address or a default route
/// come first: they are the VNICs'.
pub(crate) fn links_in_use_first(vnics: &[Vnic], nics: &LinkKindName) -> Result<Vec<Link>, netlink::Error> {
    let mut socket = Socket::open()?;
    let mut links = socket.links()?;
    if vnics.iter().any(|vnic| Link::nics_of(&links, vnic.mac, nics).nth(1).is_some()) {
        let in_use = in_use(&mut socket)?;
        links.sort_by_key(|link| !in_use.contains(&link.index));
    }
    Ok(links)
}

/// The indexes of links with an address, which link-local ones are not, or a default route.
fn in_use(socket: &mut Socket) -> Result<HashSet<u32>, netlink::Error> {
    let is_link_local = |address: IpAddr| match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    let addresses = socket.addresses(None)?.into_iter().filter(|it| !is_link_local(it.address.ip()));
    let mut in_use: HashSet<u32> = addresses.map(|it| it.index).collect();
    for family in Family::ALL {
        let main = RouteFilter { table: Some(TableId::MAIN), ..RouteFilter::all(family) };
        let routes = socket.routes(&main)?;
        in_use.extend(routes.iter().filter(|route| route.destination.prefix() == 0).map(|route| route.oif));
    }
    Ok(in_use)
}

/// The host's own IPv6 addresses, as our rules mark them; assigned ones first.
pub(crate) fn own() -> Result<Vec<HostAddress>, netlink::Error> {
    let mut socket = Socket::open()?;
    let rules = socket.rules(Family::Ipv6)?;
    let assigned: HashSet<IpAddr> = socket.addresses(None)?.iter().map(|it| it.address.ip()).collect();
    let ours = rules.iter().filter(|it| it.protocol == PROTOCOL && it.priority == RulePriorities::FROM_VNIC);
    let own = ours.filter_map(|rule| Some((rule.table, rule.from?.ip())));
    let mut own: Vec<HostAddress> =
        own.map(|(table, address)| HostAddress { table, address, is_assigned: assigned.contains(&address) }).collect();
    own.sort_by_key(|own| !own.is_assigned);
    Ok(own)
}

/// The addresses that our routes lead to pods.
pub(crate) fn pods() -> Result<HashSet<IpAddr>, netlink::Error> {
    let (mut socket, mut pods) = (Socket::open()?, HashSet::new());
    for family in Family::ALL {
        let to_pods = RouteFilter { family, table: Some(PODS_TABLE), protocol: Some(PROTOCOL), oif: None };
        pods.extend(socket.routes(&to_pods)?.into_iter().map(|route| route.destination.ip()));
    }
    Ok(pods)
}

/// What refers to our tables: every route and rule, because a table that another program uses is not free either. The
/// rule of a VNIC's own address has the VNIC's table.
pub(crate) fn referred(vnics: &[Vnic]) -> Result<TableReferences, netlink::Error> {
    let mut socket = Socket::open()?;
    let mut referred = TableReferences::default();
    for family in Family::ALL {
        let routes = socket.routes(&RouteFilter::all(family))?;
        referred.tables.extend(routes.into_iter().map(|route| route.table).filter(is_ours));
        for rule in socket.rules(family)? {
            if rule.protocol == PROTOCOL && rule.priority == RulePriorities::FROM_VNIC {
                let own = |vnic: &&Vnic| {
                    vnic.addressing
                        .of(family)
                        .is_some_and(|at| rule.from.is_some_and(|from| at.listed().any(|own| own == from.ip())))
                };
                referred.owners.extend(vnics.iter().find(own).map(|vnic| (vnic.id.clone(), rule.table)));
            }
            referred.tables.extend(Some(rule.table).filter(is_ours));
        }
    }
    Ok(referred)
}

/// What has to change. Objects that are `spared` stay although they are not wanted. If foreign routes in the table of pods
/// would refuse every packet, no rule leads there. The host gets no address that a pod holds (`held`).
pub(crate) fn plan(
    places: &mut Places,
    network: &HostNetwork,
    spared: &[Object],
    held: &HashSet<IpAddr>,
) -> Result<HostPlan, Error> {
    let mut desired = host::desired(network);
    let is_held = |object: &Object| matches!(object, Object::Address(it) if held.contains(&it.address.ip()));
    desired.retain(|object| !is_held(object));
    let observed = host::observe(&desired, places)?;
    // Routes in that table matter only if a rule leads there, or is to.
    let leads = |family: &Family| {
        let rule = host::to_pods(*family);
        let mut there = desired.iter().chain(observed.iter().map(|(_, found)| found));
        there.any(|object| object.same_slot(&rule))
    };
    let families: Vec<Family> = Family::ALL.into_iter().filter(leads).collect();
    let foreign = foreign_routes::look(&families)
        .map_err(|source| Error::Observe { what: format!("routes in table {PODS_TABLE}"), source })?;
    let barring = foreign.iter().filter(|it| it.blocks());
    let barred: Vec<Object> = barring.map(|it| host::to_pods(it.route.family())).collect();
    let barred = |object: &Object| barred.iter().any(|rule| rule.same_slot(object));
    desired.retain(|object| !barred(object));
    let mut steps = datapath::plan(&host::placed(desired), &observed);
    let mut left = Vec::new();
    steps.retain(|step| match &step.change {
        Change::Delete(found) if spared.iter().any(|object| object.same_slot(found) && !barred(object)) => {
            left.push(found.clone());
            false
        }
        Change::Add(_) | Change::Delete(_) | Change::Replace { .. } => true,
    });
    // Not as a stale object, which a later reconcile may remove: the host has no network as long as the rule is there.
    let (urgent, steps): (Vec<Step>, Vec<Step>) =
        steps.into_iter().partition(|step| matches!(&step.change, Change::Delete(object) if barred(object)));
    let urgent = urgent.into_iter().map(|step| Batch { part: Part::Base, steps: vec![step] });
    let batches = urgent.chain(batches(steps, network)).collect();
    Ok(HostPlan { batches, spared: left, conditions: foreign_routes::conditions(&foreign) })
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale => f.write_str("no longer wanted"),
            Self::Base => f.write_str("host"),
            Self::Vnic(id) => id.fmt(f),
            Self::Nft => f.write_str("nft table"),
        }
    }
}

fn is_ours(table: &TableId) -> bool {
    table.0 >= TABLE_BASE
}
