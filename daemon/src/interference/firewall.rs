//! Firewalls that reject what is forwarded: Oracle Linux's own does by default, and pods' packets are forwarded.

use datapath::host::HostNetwork;
use netlink::nft::{Barrier, LinkMatch, Socket, Way};
use netlink::xtables;
use resident::logging::chain;
use vcn::HOST_LINK_PREFIX;

use crate::condition::{Condition, Reason};

pub(super) fn look(network: &HostNetwork) -> Vec<Condition> {
    // Nothing is forwarded for pods that are somebody else's.
    if network.pods.is_none() || network.vnics.is_empty() {
        return Vec::new();
    }
    match barriers(network) {
        Ok(barriers) => barriers.iter().map(condition).collect(),
        Err(error) if error.is_unsupported() => Vec::new(),
        // Looked at again in a moment.
        Err(error) if error.is_retryable() => Vec::new(),
        Err(error) => vec![Condition::degraded(Reason::HostNetworkFailed, chain(&error)).about("firewalls")],
    }
}

fn barriers(network: &HostNetwork) -> Result<Vec<Barrier>, netlink::Error> {
    let mut socket = Socket::open()?;
    let pods = || LinkMatch::Prefix(HOST_LINK_PREFIX.to_owned());
    let mut found: Vec<Barrier> = Vec::new();
    for vnic in &network.vnics {
        let link = || LinkMatch::Exact(vnic.placement.link().clone());
        for way in [Way { from: pods(), to: link() }, Way { from: link(), to: pods() }] {
            found.extend(socket.barriers(&way)?);
            found.extend(xtables::barriers(&way)?);
        }
    }
    found.sort_by_key(ToString::to_string);
    found.dedup_by_key(|barrier| barrier.to_string());
    Ok(found)
}

fn condition(barrier: &Barrier) -> Condition {
    let Barrier { family, table, chain, how, legacy } = barrier;
    let accept = match (*family, table.as_str()) {
        ("inet", "firewalld") => format!(
            "firewall-cmd --permanent --zone=trusted --add-interface={HOST_LINK_PREFIX}+ and firewall-cmd --reload"
        ),
        ("inet", _) => format!(
            "nft insert rule inet {table} {chain} iifname \"{HOST_LINK_PREFIX}*\" accept, and the same with oifname"
        ),
        (family, _) => {
            let command = match (family, legacy) {
                ("ip6", true) => "ip6tables-legacy",
                ("ip6", false) => "ip6tables",
                (_, true) => "iptables-legacy",
                (_, false) => "iptables",
            };
            let command = format!("{command} -t {table}");
            let command = command.strip_suffix(" -t filter").unwrap_or(&command);
            format!(
                "{command} -I FORWARD -i {HOST_LINK_PREFIX}+ -j ACCEPT and {command} -I FORWARD -o {HOST_LINK_PREFIX}+ -j \
                 ACCEPT, and save them"
            )
        }
    };
    let message = format!(
        "the firewall stops what is forwarded from and to pods, unless one of its rules before accepts it (chain {chain} of \
         table {family} {table}{}: {how}). Make it accept pods' links: {accept}; or stop the firewall service",
        if *legacy { " of iptables-legacy" } else { "" }
    );
    Condition::degraded(Reason::ForwardingRejected, message).about(barrier)
}
