//! The kernel's side of a pass: look, plan, and take the steps in batches that fail on their own, so that one VNIC's
//! trouble is nobody else's.

mod foreign_routes;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use datapath::host::{self, HostNetwork};
use datapath::{Change, Error, Object, Places, Step};
use ipnetwork::IpNetwork;
use netlink::{Link, RouteFilter, Socket};
use vcn::{Family, Ocid, PODS_TABLE, PROTOCOL, RulePriorities, TABLE_BASE, TableId, Vnic};

use crate::decide::host_address::HostAddress;
use crate::decide::slots::Referred;
use crate::report::condition::Condition;

/// The host's kernel.
#[derive(Clone, Debug)]
pub struct Host {
    sysctl_root: PathBuf,
}

/// Steps that are done together or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// What they are about.
    pub part: Part,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// A part of the host's network that can fail on its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Something of ours that is no longer wanted.
    Stale,
    /// Settings and rules of the whole host.
    Base,
    /// A VNIC.
    Vnic(Ocid),
    /// Our nft tables. User-mode kernels have none: pods then live without DNS by the link-local address.
    Nft,
}

/// What there is to be done.
#[derive(Debug)]
pub struct HostPlan {
    /// The steps, in the order they are to be done.
    pub batches: Vec<Batch>,
    /// Objects that are not wanted and stay.
    pub spared: Vec<Object>,
    /// What somebody should know of others' routes in the table that leads to pods.
    pub conditions: Vec<Condition>,
}

/// A batch that was tried.
#[derive(Debug)]
pub struct AppliedBatch {
    /// What.
    pub batch: Batch,
    /// How it went.
    pub result: Result<(), Error>,
}

impl Host {
    /// The kernel, with its settings at a path.
    #[must_use]
    pub fn new(sysctl_root: &Path) -> Self {
        Self { sysctl_root: sysctl_root.to_owned() }
    }

    /// The host's links.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn links(&self) -> Result<Vec<Link>, netlink::Error> {
        Socket::open()?.links()
    }

    /// Whether the kernel speaks IPv6 at all (`ipv6.disable=1` takes its settings away too).
    #[must_use]
    pub fn speaks_ipv6(&self) -> bool {
        self.sysctl_root.join("net/ipv6").exists()
    }

    /// The host's own IPv6 addresses, as rules of ours tell them; those that it has come first.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn own(&self) -> Result<Vec<HostAddress>, netlink::Error> {
        let mut socket = Socket::open()?;
        let rules = socket.rules(Family::Ipv6)?;
        let assigned: HashSet<IpAddr> = socket.addresses(None)?.iter().map(|it| it.address.ip()).collect();
        let ours = rules.iter().filter(|it| it.protocol == PROTOCOL && it.priority == RulePriorities::FROM_VNIC);
        let own = ours.filter_map(|rule| Some((rule.table, rule.from?.ip())));
        let mut own: Vec<HostAddress> = own
            .map(|(table, address)| HostAddress { table, address, is_assigned: assigned.contains(&address) })
            .collect();
        own.sort_by_key(|own| !own.is_assigned);
        Ok(own)
    }

    /// The addresses that our routes lead to pods.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn pods(&self) -> Result<HashSet<IpAddr>, netlink::Error> {
        let (mut socket, mut pods) = (Socket::open()?, HashSet::new());
        for family in Family::ALL {
            let to_pods = RouteFilter { family, table: Some(PODS_TABLE), protocol: Some(PROTOCOL), oif: None };
            pods.extend(socket.routes(&to_pods)?.into_iter().map(|route| route.destination.ip()));
        }
        Ok(pods)
    }

    /// What refers to tables of ours: every route and rule, whoever made it, because a table that somebody else uses is
    /// not free either. Tables of VNICs are told by the rule about the VNIC's own address.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn referred(&self, vnics: &[Vnic]) -> Result<Referred, netlink::Error> {
        let mut socket = Socket::open()?;
        let mut referred = Referred::default();
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

    /// What has to change. What is `spared` stays where it is found although it is not wanted. No rule leads to pods where
    /// others' routes in their table would have it refuse everybody's packets. The host gets no address that somebody has
    /// (`held`), whoever says that it is the host's.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn plan(&self, network: &HostNetwork, spared: &[Object], held: &HashSet<IpAddr>) -> Result<HostPlan, Error> {
        let mut places = self.places()?;
        let mut desired = host::desired(network);
        let is_held = |object: &Object| matches!(object, Object::Address(it) if held.contains(&it.address.ip()));
        desired.retain(|object| !is_held(object));
        let observed = host::observe(&desired, &mut places)?;
        // Where no rule leads to that table, and none is to, what is in it is nobody's trouble.
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
        // Not as what is no longer wanted, which may be left to a later pass: the host has no network as long as it is there.
        let (urgent, steps): (Vec<Step>, Vec<Step>) =
            steps.into_iter().partition(|step| matches!(&step.change, Change::Delete(object) if barred(object)));
        let urgent = urgent.into_iter().map(|step| Batch { part: Part::Base, steps: vec![step] });
        let batches = urgent.chain(batches(steps, network)).collect();
        Ok(HostPlan { batches, spared: left, conditions: foreign_routes::conditions(&foreign) })
    }

    /// Takes the steps. Every batch is tried, whatever became of those before it.
    ///
    /// # Errors
    /// When the kernel cannot be spoken to at all.
    pub fn apply(&self, batches: Vec<Batch>) -> Result<Vec<AppliedBatch>, Error> {
        let mut places = self.places()?;
        let mut tried = Vec::with_capacity(batches.len());
        for batch in batches {
            let result = datapath::apply(&batch.steps, &mut places);
            tried.push(AppliedBatch { batch, result });
        }
        Ok(tried)
    }

    fn places(&self) -> Result<Places, Error> {
        Places::host(&self.sysctl_root).map_err(|source| Error::Observe { what: "the host".into(), source })
    }
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

/// Sorts steps into batches: what goes, each on its own; the host's settings; what several VNICs share (a physical port);
/// each VNIC; the nft table; and last the VNICs' addresses that go, because with a link's only address the kernel drops
/// the link's routes, then the rules that tell them to be ours. An address in whose place a VNIC has another, or that is somebody
/// else's, is no leftover that may stay for a while, but the VNIC's own trouble: it may be a pod's a moment later.
fn batches(steps: Vec<Step>, network: &HostNetwork) -> Vec<Batch> {
    let only = |vnics: Vec<host::HostVnic>| host::desired(&HostNetwork { vnics, ..network.clone() });
    let base = only(Vec::new());
    let owned: Vec<(&Ocid, Vec<Object>)> = network
        .vnics
        .iter()
        .map(|vnic| {
            let objects = only(vec![vnic.clone()]).into_iter().filter(|object| !base.contains(object));
            (&vnic.vnic.id, objects.collect())
        })
        .collect();
    let address = |step: &Step| match &step.change {
        Change::Delete(Object::Address(address)) => Some(address.address),
        _ => None,
    };
    let leaving: Vec<IpNetwork> = steps.iter().filter_map(address).collect();
    let (mut left, mut told) = (vec![], vec![]);
    let (mut stale, mut settings, mut ipv6, mut shared, mut nft) = (vec![], vec![], vec![], vec![], vec![]);
    let mut by_vnic: Vec<(&Ocid, Vec<Step>)> = owned.iter().map(|(id, _)| (*id, Vec::new())).collect();
    for step in steps {
        let object = match &step.change {
            Change::Delete(Object::Address(_)) => {
                left.push(step);
                continue;
            }
            Change::Delete(Object::Rule(rule)) if rule.from.is_some_and(|from| leaving.contains(&from)) => {
                told.push(step);
                continue;
            }
            Change::Delete(_) => {
                stale.push(step);
                continue;
            }
            Change::Add(object) | Change::Replace { to: object, .. } => object,
        };
        let owners: BTreeSet<&Ocid> =
            owned.iter().filter(|(_, objects)| objects.contains(object)).map(|(id, _)| *id).collect();
        let mut owners = owners.into_iter();
        match (owners.next(), owners.next(), object) {
            (_, _, Object::NftTable(_)) => nft.push(step),
            (None, _, Object::Sysctl(setting)) if setting.key.iter().any(|part| part == "ipv6") => ipv6.push(step),
            (None, _, _) => settings.push(step),
            (Some(_), Some(_), _) => shared.push(step),
            (Some(owner), None, _) => {
                if let Some((_, steps)) = by_vnic.iter_mut().find(|(id, _)| *id == owner) {
                    steps.push(step);
                }
            }
        }
    }
    let (replaced, left): (Vec<_>, Vec<_>) =
        left.into_iter().map(|step| (served(&step, network).cloned(), step)).partition(|(vnic, _)| vnic.is_some());
    let replaced = replaced.into_iter().filter_map(|(vnic, step)| Some((Part::Vnic(vnic?), vec![step])));
    let left = left.into_iter().map(|(_, step)| step).collect();
    // The same port, once for every VLAN on it.
    shared.dedup();
    let singly = |part: Part, steps: Vec<Step>| steps.into_iter().map(move |step| (part.clone(), vec![step]));
    let vnics = by_vnic.into_iter().map(|(id, steps)| (Part::Vnic(id.clone()), steps));
    let nft = (Part::Nft, nft);
    singly(Part::Stale, stale)
        .chain(singly(Part::Base, settings))
        // Together and in order: forwarding without accept_ra=2 would cost the host its default route.
        .chain([(Part::Base, ipv6)])
        .chain(singly(Part::Base, shared))
        .chain(vnics)
        .chain([nft])
        .chain(replaced)
        .chain(singly(Part::Stale, left))
        .chain(singly(Part::Stale, told))
        .filter(|(_, steps)| !steps.is_empty())
        .map(|(part, steps)| Batch { part, steps })
        .collect()
}

/// The VNIC on the link of an address that goes, where it has another of that family, or should.
fn served<'a>(step: &Step, network: &'a HostNetwork) -> Option<&'a Ocid> {
    let Change::Delete(Object::Address(gone)) = &step.change else { return None };
    let family = Family::of(gone.address.ip());
    let on = |host: &&host::HostVnic| *host.placement.link() == gone.link && host.vnic.addressing.of(family).is_some();
    network.vnics.iter().find(on).map(|host| &host.vnic.id)
}
