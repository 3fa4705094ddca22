//! VNICs that somebody else configures, too, and hosts that were given an address of a pod's, told by what is in the kernel:
//! whoever it is, it looks like this.

use std::collections::HashSet;
use std::net::IpAddr;

use netlink::{Address, RouteFilter, Rule, Socket};
use resident::logging::chain;
use vcn::{Family, PODS_TABLE, PROTOCOL};

use super::{Subject, index_of};
use crate::report::condition::{Condition, Reason};

/// What is in the kernel.
struct Seen {
    addresses: Vec<Address>,
    rules: Vec<Rule>,
    /// Where routes to pods lead to.
    pods: HashSet<IpAddr>,
}

pub(super) fn look(subject: Subject<'_>) -> Vec<Condition> {
    match Seen::now() {
        Ok(Seen { addresses, rules, pods }) => {
            let mut found = told(subject, &addresses, &rules);
            found.extend(addresses.iter().filter(|it| pods.contains(&it.address.ip())).map(|it| taken(subject, it)));
            found
        }
        Err(error) => {
            vec![Condition::degraded(Reason::HostNetworkFailed, chain(&error)).about("who else configures VNICs")]
        }
    }
}

impl Seen {
    fn now() -> Result<Self, netlink::Error> {
        let mut socket = Socket::open()?;
        let (mut rules, mut pods) = (Vec::new(), HashSet::new());
        for family in Family::ALL {
            rules.extend(socket.rules(family)?);
            let to_pods = RouteFilter { family, table: Some(PODS_TABLE), protocol: Some(PROTOCOL), oif: None };
            pods.extend(socket.routes(&to_pods)?.into_iter().map(|route| route.destination.ip()));
        }
        Ok(Self { addresses: socket.addresses(None)?, rules, pods })
    }
}

/// The kernel keeps what is for an address of its own, whatever routes there are.
fn taken(subject: Subject<'_>, held: &Address) -> Condition {
    let link = subject.links.iter().find(|link| link.index == held.index);
    let link = link.map_or_else(|| format!("link {}", held.index), |link| link.name.to_string());
    let address = held.address;
    let message = format!(
        "the host has {address} on {link}, and it is a pod's: what is for the pod stays with the host. Remove it \
         (ip addr del {address} dev {link}), and see who gives it"
    );
    Condition::degraded(Reason::VnicConfiguredTwice, message).about(address.ip())
}

fn told(subject: Subject<'_>, addresses: &[Address], rules: &[Rule]) -> Vec<Condition> {
    let mut found = Vec::new();
    for vnic in &subject.network.vnics {
        let index = index_of(vnic, subject.links);
        let own: Vec<_> = vnic.vnic.addressing.iter().map(|(_, at)| at.address).collect();
        // Whoever gives it the subnet's prefix also gets the subnet's route in the main table.
        let wide = addresses.iter().find(|it| {
            let host = Family::of(it.address.ip()).host_prefix();
            Some(it.index) == index && own.contains(&it.address.ip()) && it.address.prefix() < host
        });
        let rule = rules.iter().find(|it| {
            it.protocol != PROTOCOL && it.from.is_some_and(|from| own.contains(&from.ip())) && it.table != vnic.table
        });
        let name = vnic.placement.link();
        let mut signs = Vec::new();
        signs.extend(wide.map(|it| format!("{} has the address {}", name, it.address)));
        signs.extend(rule.map(|it| format!("there is the rule \"{it}\"")));
        if !signs.is_empty() {
            let message = format!(
                "somebody else configures {name} as well: {}. The host's own packets to that subnet may leave by this VNIC. \
                 Look for secondary_vnic_all_configure.sh (-d undoes it), ocid, cloud-init, NetworkManager and \
                 systemd-networkd",
                signs.join(", and ")
            );
            found.push(Condition::degraded(Reason::VnicConfiguredTwice, message).about(&vnic.vnic.id));
        }
    }
    found
}
