//! VNICs that somebody else configures, too, told by what is in the kernel: whoever it is, it looks like this.

use netlink::{Address, Rule, Socket};
use resident::logging::chain;
use vcn::{Family, PROTOCOL};

use super::{Subject, index_of};
use crate::condition::{Condition, Reason};

pub(super) fn look(subject: Subject<'_>) -> Vec<Condition> {
    let read = || -> Result<(Vec<Address>, Vec<Rule>), netlink::Error> {
        let mut socket = Socket::open()?;
        let mut rules = socket.rules(Family::Ipv4)?;
        rules.extend(socket.rules(Family::Ipv6)?);
        Ok((socket.addresses(None)?, rules))
    };
    match read() {
        Ok((addresses, rules)) => told(subject, &addresses, &rules),
        Err(error) => {
            vec![Condition::degraded(Reason::HostNetworkFailed, chain(&error)).about("who else configures VNICs")]
        }
    }
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
