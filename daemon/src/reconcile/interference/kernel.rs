//! Interference that the kernel shows, whichever program caused it: conflicting configuration of a VNIC, a pod's address on
//! the host, and a firewall that stops forwarded packets.

use std::time::Instant;

use datapath::host::HostNetwork;
use netlink::nft::{BlockingChain, ForwardPath, LinkMatch};
use netlink::{Address, Rule, Socket};
use resident::logging::chain;
use vcn::{Family, HOST_LINK_PREFIX, PROTOCOL};

use super::Context;
use crate::facts::condition::{Condition, Reason};
use crate::reconcile::host;
use crate::sources::host_links::{self, Uplink};

/// A check of the forward chains is put off for this many times the time of the last one: a node may have tens of thousands
/// of rules.
const CHECK_PAUSE: u32 = 20;

/// Chains at the forward hook that stop packets of pods: Oracle Linux rejects all forwarded packets by default.
#[derive(Debug, Default)]
pub(super) struct ForwardFilter {
    found: Vec<Condition>,
    ways: Vec<ForwardPath>,
    not_before: Option<Instant>,
}

/// VNICs that another program configures too, and pods' addresses that the host holds.
pub(super) fn conflicts(context: &Context<'_>) -> Vec<Condition> {
    observed_conflicts(context).unwrap_or_else(|error| vec![unreadable(&error, "conflicting configuration")])
}

fn observed_conflicts(context: &Context<'_>) -> Result<Vec<Condition>, netlink::Error> {
    let mut socket = Socket::open()?;
    let rules = [socket.rules(Family::Ipv4)?, socket.rules(Family::Ipv6)?].concat();
    let (pods, addresses) = (host::pods()?, socket.addresses(None)?);
    let mut found = configured_twice(context, &addresses, &rules);
    found.extend(addresses.iter().filter(|it| pods.contains(&it.address.ip())).map(|it| held_by_host(context, it)));
    found.extend(preferred_uplinks(context, &host_links::uplinks()?.all));
    Ok(found)
}

/// Default routes through devices that are not a VNIC's, and that precede the primary VNIC's own: an RDMA network's, for example.
fn preferred_uplinks<'a>(context: &'a Context<'_>, uplinks: &'a [Uplink]) -> impl Iterator<Item = Condition> + 'a {
    let vnics = context.facts.vnics();
    let of = move |family: Family| uplinks.iter().filter(move |uplink| uplink.family == family);
    Family::ALL.into_iter().filter_map(move |family| {
        let preferred = of(family).next().filter(|uplink| vnics.iter().all(|vnic| vnic.mac != uplink.mac))?;
        let primary = of(family).find(|uplink| vnics.first().is_some_and(|vnic| vnic.mac == uplink.mac))?;
        let message = format!(
            "The {family} route \"{}\" uses a device that is not a VNIC's and precedes \"{}\" of the primary VNIC, so packets of \
             the host leave through it. Remove it in the configuration of that device, or give it a higher metric.",
            preferred.route, primary.route
        );
        Some(Condition::degraded(Reason::ConflictingConfiguration, message).about(&preferred.route))
    })
}

/// The kernel delivers packets for its own addresses locally, before any route.
fn held_by_host(context: &Context<'_>, held: &Address) -> Condition {
    let link = context.links.iter().find(|link| link.index == held.index);
    let link = link.map_or_else(|| format!("link {}", held.index), |link| link.name.to_string());
    let address = held.address;
    let message = format!(
        "The host holds the pod address {address} on {link}, so the pod's packets stay on the host. Run `ip addr del {address} \
         dev {link}`, and find the program that added it."
    );
    Condition::degraded(Reason::ConflictingConfiguration, message).about(address.ip())
}

fn configured_twice(context: &Context<'_>, addresses: &[Address], rules: &[Rule]) -> Vec<Condition> {
    let mut found = Vec::new();
    for vnic in context.vnics() {
        let index = context.index_of(vnic);
        let own: Vec<_> = vnic.vnic.addressing.iter().map(|(_, at)| at.address).collect();
        // The subnet's prefix also brings the subnet's route in the main table.
        let wide = addresses.iter().find(|it| {
            let full = Family::of(it.address.ip()).host_prefix();
            Some(it.index) == index && own.contains(&it.address.ip()) && it.address.prefix() < full
        });
        let rule = rules.iter().find(|it| {
            it.protocol != PROTOCOL && it.from.is_some_and(|from| own.contains(&from.ip())) && it.table != vnic.table
        });
        let signs: Vec<String> = wide
            .map(|it| format!("address {}", it.address))
            .into_iter()
            .chain(rule.map(|it| format!("rule \"{it}\"")))
            .collect();
        if !signs.is_empty() {
            let message = format!(
                "Another program also configures {} ({}), so host packets may leave by the wrong VNIC. Look for \
                 secondary_vnic_all_configure.sh (`-d` undoes it), ocid, cloud-init, NetworkManager and systemd-networkd.",
                vnic.placement.link(),
                signs.join(", ")
            );
            found.push(Condition::degraded(Reason::ConflictingConfiguration, message).about(&vnic.vnic.id));
        }
    }
    found
}

impl ForwardFilter {
    /// The filters that stop packets from or to pods, as last read.
    pub(super) fn check(&mut self, network: &HostNetwork) -> Vec<Condition> {
        // On a node of another pod network we forward nothing.
        if network.pods.is_none() || network.vnics.is_empty() {
            *self = Self::default();
            return Vec::new();
        }
        let (ways, begun) = (ways(network), Instant::now());
        if self.ways != ways || self.not_before.is_none_or(|at| at <= begun) {
            let read = netlink::nft::NftSocket::open().and_then(|mut socket| socket.blocking_chains(&ways));
            self.ways = ways;
            self.note(read);
            self.not_before = begun.checked_add(begun.elapsed().saturating_mul(CHECK_PAUSE));
        }
        self.found.clone()
    }

    fn note(&mut self, read: Result<Vec<BlockingChain>, netlink::Error>) {
        match read {
            Ok(mut chains) => {
                chains.sort_by_key(ToString::to_string);
                self.found = chains.iter().map(stops_forwarding).collect();
            }
            // Without nf_tables there is no such filter. iptables-legacy is not examined.
            Err(error) if error.is_unsupported() => self.found = Vec::new(),
            // The rules changed each time they were read: the next check reads them again.
            Err(error) if error.is_retryable() => {}
            Err(error) => self.found = vec![unreadable(&error, "firewalls")],
        }
    }
}

fn ways(network: &HostNetwork) -> Vec<ForwardPath> {
    let pods = || LinkMatch::Prefix(HOST_LINK_PREFIX.to_owned());
    let both = |link: &vcn::IfName| {
        let link = || LinkMatch::Exact(link.clone());
        [ForwardPath { from: pods(), to: link() }, ForwardPath { from: link(), to: pods() }]
    };
    network.vnics.iter().flat_map(|vnic| both(vnic.placement.link())).collect()
}

fn stops_forwarding(blocking: &BlockingChain) -> Condition {
    let BlockingChain { family, table, chain, how } = blocking;
    // The tables of iptables-nft have its names, and its chains are in capitals.
    let is_iptables = chain == "FORWARD" && matches!(table.as_str(), "filter" | "nat" | "mangle" | "raw" | "security");
    let accept = match (*family, table.as_str()) {
        ("inet", "firewalld") => format!(
            "firewall-cmd --permanent --zone=trusted --add-interface={HOST_LINK_PREFIX}+ && firewall-cmd --reload"
        ),
        ("ip" | "ip6", table) if is_iptables => {
            let command = if *family == "ip6" { "ip6tables" } else { "iptables" };
            let table = if table == "filter" { String::new() } else { format!(" -t {table}") };
            ["-i", "-o"]
                .map(|side| format!("{command}{table} -I FORWARD {side} {HOST_LINK_PREFIX}+ -j ACCEPT"))
                .join(" && ")
        }
        (family, table) => ["iifname", "oifname"]
            .map(|side| format!("nft insert rule {family} {table} {chain} {side} '\"{HOST_LINK_PREFIX}*\"' accept"))
            .join(" && "),
    };
    let message = format!(
        "Chain {chain} of table {family} {table} stops forwarded packets ({how}), pods' too unless an earlier rule accepts \
         them. Run `{accept}` and save the rules, or stop the firewall service."
    );
    Condition::degraded(Reason::ForwardingRejected, message).about(blocking)
}

fn unreadable(error: &netlink::Error, subject: &str) -> Condition {
    Condition::degraded(Reason::HostNetworkFailed, chain(error)).about(subject)
}
