//! Packets that other programs' rules or routes lead another way although all of our objects are there. The kernel is queried for
//! each VNIC and family: its answer counts, not the list of rules, which only names the cause. Nothing is changed.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use datapath::host::{HostNetwork, HostVnic};
use datapath::pod::{PodNetwork, Uplink};
use datapath::route_check::{self, WrongRoute};
use datapath::{Error, Places, Snapshot, pods};
use ipam::Allocation;
use ipnetwork::IpNetwork;
use netlink::{RouteFilter, RouteKind, RoutedPacket, Rule, Socket};
use resident::logging::chain;
use vcn::{Family, Ocid, PROTOCOL, Priority, RulePriorities, TableId};

use super::Context;
use crate::decide::pods::network;
use crate::facts::condition::{Condition, Reason};
use crate::facts::reconcile_report::Cause;
use crate::reconcile::StageReport;
use crate::reconcile::pods::{SETTLED, link_of};

/// A check for an event is postponed by this many times the time of the last one: some programs change rules all the time.
const CHECK_PAUSE: u32 = 20;

/// The longest time that a check for an event is postponed, and so the longest time that a condition is out of date.
const MAX_DELAY: Duration = Duration::from_secs(30);

/// The kernel's table of the host's own addresses.
const LOCAL: TableId = TableId(255);

/// The routes of packets as last read.
#[derive(Debug, Default)]
pub(super) struct RouteCheck {
    found: Vec<Condition>,
    not_before: Option<Instant>,
    /// There was an event after the last check: another check follows at `not_before`.
    is_stale: bool,
}

impl RouteCheck {
    /// A condition for each VNIC whose packets take a wrong route. Only VNICs whose objects are in sync are looked at.
    pub(super) fn check(
        &mut self,
        network: &HostNetwork,
        context: &Context<'_>,
        report: &StageReport,
    ) -> Vec<Condition> {
        let begun = Instant::now();
        let Some(vnics) = &report.configured else { return Vec::new() };
        if context.cause == Cause::Kernel && self.not_before.is_some_and(|at| begun < at) {
            self.is_stale = true;
            return self.found.clone();
        }
        let checked = match misrouted(network, vnics, context, &report.running) {
            Ok(found) => Some(found),
            // The rules changed while they were read. Rules of pods may have changed, whose events cause no check.
            Err(error) if error.is_retryable() => None,
            Err(error) => {
                Some(vec![Condition::degraded(Reason::HostNetworkFailed, chain(&error)).about("packet routes")])
            }
        };
        if context.is_preview() {
            return checked.unwrap_or_else(|| self.found.clone());
        }
        self.note(checked, begun, begun.elapsed());
        self.found.clone()
    }

    /// Records what a check found, if it completed, and postpones the next one.
    fn note(&mut self, checked: Option<Vec<Condition>>, begun: Instant, took: Duration) {
        self.is_stale = checked.is_none();
        self.found = checked.unwrap_or_else(|| std::mem::take(&mut self.found));
        self.not_before = begun.checked_add(took.saturating_mul(CHECK_PAUSE).min(MAX_DELAY));
    }

    /// Whether a postponed check is due. Each is due once.
    pub(super) fn take_due(&mut self, now: Instant) -> bool {
        let is_due = self.is_stale && self.not_before.is_none_or(|at| at <= now);
        self.is_stale &= !is_due;
        is_due
    }

    /// The time until a postponed check is due. Hints about pods, which are examined then as well, settle meanwhile.
    pub(super) fn again(&self, now: Instant) -> Option<Duration> {
        let pause = self.not_before.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        self.is_stale.then(|| pause.max(SETTLED))
    }
}

/// What the kernel has, as far as the check needs it.
struct HostView {
    places: Places,
    rules: Vec<Rule>,
    addresses: HashSet<IpAddr>,
}

fn misrouted(
    network: &HostNetwork,
    vnics: &[HostVnic],
    context: &Context<'_>,
    running: &[Allocation],
) -> Result<Vec<Condition>, Error> {
    let observed = |source| Error::Observe { what: "policy rules".to_owned(), source };
    let mut socket = Socket::open().map_err(observed)?;
    let rules = [socket.rules(Family::Ipv4).map_err(observed)?, socket.rules(Family::Ipv6).map_err(observed)?].concat();
    let assigned = socket.addresses(None).map_err(observed)?;
    let addresses = assigned.into_iter().map(|it| it.address.ip()).collect();
    let mut host = HostView { places: context.node.places()?, rules, addresses };
    let mut by_vnic: BTreeMap<Ocid, Vec<WrongRoute>> = BTreeMap::new();
    for (vnic, wrong) in of_pods(vnics, running, &mut host)? {
        by_vnic.entry(vnic).or_default().push(wrong);
    }
    for vnic in vnics {
        let HostView { places, addresses, .. } = &mut host;
        let mut wrong = route_check::of_vnic(vnic, |address| addresses.contains(&address), places)?;
        wrong.retain(|it| it.table().is_some() || it.cause(&host.rules).is_some());
        by_vnic.entry(vnic.vnic.id.clone()).or_default().extend(wrong);
    }
    let mut found: Vec<Condition> =
        by_vnic.into_iter().filter_map(|(vnic, wrong)| Some(overridden(&wrong, &host.rules)?.about(vnic))).collect();
    let primary = context.facts.vnics().first();
    for family in Family::ALL.into_iter().filter(|family| *family == Family::Ipv4 || context.has_ipv6) {
        found.extend(main_unreachable(family, &host.rules, &mut socket).map_err(observed)?);
        if network.pods.is_some() && primary.is_some_and(|primary| primary.addressing.of(family).is_some()) {
            let wrong = route_check::to_metadata(&network.primary, family, &mut host.places)?;
            let wrong = wrong.filter(|it| it.table().is_some() || it.cause(&host.rules).is_some());
            let about = format!("metadata service, {family}");
            found.extend(wrong.and_then(|it| overridden(&[it], &host.rules)).map(|it| it.about(about)));
        }
    }
    Ok(found)
}

/// The wrong routes of pods, by VNIC. Unless a rule of another program precedes our rules, one pod stands for all of its VNIC.
fn of_pods(vnics: &[HostVnic], running: &[Allocation], host: &mut HostView) -> Result<Vec<(Ocid, WrongRoute)>, Error> {
    let precedes =
        |rule: &Rule| rule.protocol != PROTOCOL && rule.priority > Priority(0) && rule.priority < RulePriorities::LAST;
    let is_outranked = host.rules.iter().any(precedes);
    let (mut checked, mut suspects) = (HashSet::new(), Vec::new());
    for allocation in running {
        let mut network = network(allocation, |id| link_of(vnics, id));
        network.addresses.retain(|it| is_outranked || checked.insert((it.table, Family::of(it.address))));
        let uplinks: Vec<Uplink> = allocation.addresses.iter().filter_map(|it| uplink(it, vnics)).collect();
        if !route_check::of_pod(&network, &uplinks, &mut host.places)?.is_empty() {
            suspects.push((allocation, network, uplinks));
        }
    }
    if suspects.is_empty() {
        return Ok(Vec::new());
    }
    // A pod that is being deleted lacks objects: then an answer that differs from the expected one is not a finding.
    let seen = Snapshot::of_host(&mut host.places)?;
    let mut found = Vec::new();
    for (allocation, sampled, uplinks) in suspects {
        let whole: PodNetwork = network(allocation, |id| link_of(vnics, id));
        if pods::repairs(&seen, &whole, allocation.mtu, &host.places).is_some_and(|steps| steps.is_empty()) {
            let wrong = route_check::of_pod(&sampled, &uplinks, &mut host.places)?;
            // An address of a pod on the host is reported by itself.
            let wrong = wrong.into_iter().filter(|it| it.table() != Some(LOCAL));
            found.extend(wrong.filter_map(|it| {
                let held = allocation.addresses.iter().find(|held| Family::of(held.address) == it.family())?;
                Some((held.vnic_id.clone(), it))
            }));
        }
    }
    Ok(found)
}

fn uplink(held: &ipam::AssignedAddress, vnics: &[HostVnic]) -> Option<Uplink> {
    let host = vnics.iter().find(|host| host.vnic.id == held.vnic_id)?;
    let router = host.vnic.addressing.of(Family::of(held.address))?.router;
    Some(Uplink { link: host.placement.link().clone(), mac: None, table: held.table, router })
}

/// The condition of wrong routes, with the rule that causes the first of them.
fn overridden(wrong: &[WrongRoute], rules: &[Rule]) -> Option<Condition> {
    let cause = |it: &WrongRoute| {
        let of_family: Vec<Rule> = rules.iter().filter(|rule| rule.family == it.family()).cloned().collect();
        it.cause(&of_family).cloned()
    };
    let caused = wrong.iter().find_map(|it| Some((it, cause(it)?)));
    let first = caused.as_ref().map(|(wrong, _)| *wrong).or(wrong.first())?;
    let more = match wrong.len() - 1 {
        0 => String::new(),
        more => format!(" ({more} more wrong route(s))"),
    };
    let message = match caused {
        Some((_, rule)) => {
            format!(
                "rule \"{rule}\" of another program ({}) comes before our rules; {first}{more}",
                likely_owner(&rule)
            )
        }
        None => format!("{first}{more}"),
    };
    Some(Condition::degraded(Reason::RoutingOverridden, message))
}

/// The program that probably made a rule, by its table and its protocol number (linux/rtnetlink.h).
fn likely_owner(rule: &Rule) -> &'static str {
    match (rule.table.0, rule.protocol) {
        (51820, _) => "probably wg-quick",
        (52, _) => "probably Tailscale",
        (2004 | 2005, _) => "probably Cilium",
        (_, 2) => "made by the kernel, for example for a VRF",
        (_, 4) => "probably netplan with systemd-networkd, or NetworkManager",
        (_, 11 | 186..=192) => "probably FRRouting",
        (_, 12) => "probably BIRD",
        (_, 16) => "probably a DHCP client",
        (_, 0 | 3) => "made by `ip rule add`: a script, wg-quick, cloud-init, or a person",
        (_, _) => "its protocol number is not known here",
    }
}

/// A condition if no rule leads all packets to the main table, and the kernel does not use that for a destination of it.
fn main_unreachable(family: Family, rules: &[Rule], socket: &mut Socket) -> Result<Option<Condition>, netlink::Error> {
    let leads_all = |rule: &Rule| {
        let all = Rule {
            priority: rule.priority,
            protocol: rule.protocol,
            ..Rule::new(family, rule.priority, TableId::MAIN, 0)
        };
        *rule == all
    };
    if rules.iter().any(leads_all) {
        return Ok(None);
    }
    let main = socket.routes(&RouteFilter { table: Some(TableId::MAIN), ..RouteFilter::all(family) })?;
    for to in main.iter().filter(|route| route.kind == RouteKind::Unicast).filter_map(|route| within(route.destination))
    {
        match socket.route_of(&RoutedPacket { by: None, from: None, to }) {
            Ok(route) if route.table == TableId::MAIN => return Ok(None),
            // The host's own, or the anycast address of routers.
            Ok(route) if route.table == LOCAL => {}
            _ => {
                let message = format!(
                    "no {family} rule leads to the main table: packets of this host, for example to {to}, do not use its routes"
                );
                return Ok(Some(Condition::degraded(Reason::MainTableUnreachable, message).about(family)));
            }
        }
    }
    Ok(None)
}

/// An address of a network that is not link-local.
fn within(network: IpNetwork) -> Option<IpAddr> {
    match network {
        IpNetwork::V4(network) if network.prefix() > 0 => network.nth(1).or(Some(network.ip())).map(IpAddr::V4),
        IpNetwork::V6(network) if network.prefix() > 0 && !network.ip().is_unicast_link_local() => {
            network.nth(1).or(Some(network.ip())).map(IpAddr::V6)
        }
        IpNetwork::V4(_) | IpNetwork::V6(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_that_is_put_off_is_due_once_within_the_bound() {
        let begun = Instant::now();
        for (took, pause) in [(1, SETTLED), (50, Duration::from_secs(1)), (60_000, MAX_DELAY)] {
            let mut routes = RouteCheck::default();
            routes.note(Some(Vec::new()), begun, Duration::from_millis(took));
            assert_eq!((routes.again(begun), routes.take_due(begun + pause)), (None, false), "nothing was put off");
            routes.is_stale = true;
            assert_eq!(routes.again(begun), Some(pause));
            let due = [Duration::ZERO, pause, pause].map(|after| routes.take_due(begun + after));
            assert_eq!((due, routes.again(begun)), ([false, true, false], None));
        }
    }

    #[test]
    fn check_that_found_changing_rules_is_repeated() {
        let mut routes = RouteCheck::default();
        let found = vec![Condition::degraded(Reason::RoutingOverridden, "as before".to_owned())];
        routes.note(Some(found.clone()), Instant::now(), Duration::ZERO);
        routes.note(None, Instant::now(), Duration::ZERO);
        assert_eq!((&routes.found, routes.again(Instant::now())), (&found, Some(SETTLED)));
    }
}
