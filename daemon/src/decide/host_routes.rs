//! Networks that no VNIC's route may cover, because the node and its pods reach them another way. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use api::NativePodNetwork;
use datapath::host::HostVnic;
use ipnetwork::{IpNetwork, Ipv4Network, Ipv6Network};
use vcn::{Family, Instance, PerFamily, SubnetAddressing};

use crate::facts::condition::{Condition, Reason};
use crate::facts::node_facts::{API_SERVER_KEY, DNS_SERVICE_KEY};

/// How many refused routes a condition names.
const NAMED: usize = 3;

/// A network that the node reaches without routes of VNICs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NeededNetwork {
    block: IpNetwork,
    user: &'static str,
}

/// The networks that are known to be needed. `api_server` is the address that the agent uses.
pub(crate) fn needed(
    instance: Option<&Instance>,
    npn: Option<&NativePodNetwork>,
    api_server: Option<IpAddr>,
) -> Vec<NeededNetwork> {
    let of = |user: &'static str| move |block: IpNetwork| NeededNetwork { block, user };
    let named = |key: &str| instance.and_then(|it| it.metadata.get(key)?.parse::<IpAddr>().ok()).map(IpNetwork::from);
    let oracle = [
        Ipv4Network::new(Ipv4Addr::new(169, 254, 0, 0), 16).map(IpNetwork::V4),
        Ipv6Network::new(Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0, 0), 32).map(IpNetwork::V6),
        Ipv6Network::new(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10).map(IpNetwork::V6),
    ];
    let pods = npn.into_iter().flat_map(|npn| &npn.vnics).flat_map(|vnic| vnic.addressing.iter());
    let pods = pods.flat_map(|(_, at)| match at.subnet {
        Some(subnet) => [&[subnet], &at.subnets[..]].concat(),
        None => at.pods.clone(),
    });
    oracle
        .into_iter()
        .flatten()
        .map(of("link-local addresses and the metadata service"))
        .chain(api_server.map(IpNetwork::from).into_iter().chain(named(API_SERVER_KEY)).map(of("the API server")))
        .chain(named(DNS_SERVICE_KEY).map(of("Services")))
        .chain(pods.map(of("pods")))
        .collect()
}

/// Removes a VNIC's routes that cover needed networks; a condition names them. `primary` is the primary VNIC's addressing: a route
/// to its subnet is longer in the main table than a wide route, but not than that to the VNIC's own subnet. Answers from the
/// primary address would leave by the VNIC, and OCI drops them.
pub(crate) fn refuse(
    host: &mut HostVnic,
    needed: &[NeededNetwork],
    primary: &PerFamily<SubnetAddressing>,
) -> Option<Condition> {
    let mut refused = Vec::new();
    let mut is_free = |destination: IpNetwork, needed: &[NeededNetwork]| {
        let covered = needed.iter().find(|it| overlaps(it.block, destination));
        refused.extend(covered.map(|it| format!("{destination} overlaps {} ({})", it.block, it.user)));
        covered.is_none()
    };
    host.routes.retain(|route| is_free(route.destination, needed));
    let primary = primary.iter().map(|(_, at)| NeededNetwork { block: at.subnet, user: "the primary VNIC's subnet" });
    let needed: Vec<NeededNetwork> = needed.iter().cloned().chain(primary).collect();
    host.on_link.retain(|subnet| is_free(*subnet, &needed));
    let more = refused.len().saturating_sub(NAMED);
    refused.truncate(NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let message = format!("routes are refused: {}{more}; its other routes are used", refused.join(", "));
    (!refused.is_empty()).then(|| Condition::degraded(Reason::RouteRefused, message).about(&host.vnic.id))
}

fn overlaps(one: IpNetwork, other: IpNetwork) -> bool {
    Family::of(one.ip()) == Family::of(other.ip()) && (one.contains(other.network()) || other.contains(one.network()))
}

#[cfg(test)]
mod tests {
    use datapath::host::Placement;
    use vcn::{Mtu, TableId, VnicRoute};

    use super::*;
    use crate::fixture::{instance, npn, vnic};

    #[test]
    fn route_over_a_needed_network_is_refused_and_others_stay() {
        let mut instance = instance();
        instance.metadata.insert(API_SERVER_KEY.into(), "10.0.0.6".into());
        instance.metadata.insert(DNS_SERVICE_KEY.into(), "10.96.5.5".into());
        let api_server = Some("fd00:96::1".parse().unwrap());
        let needed = needed(Some(&instance), Some(&npn("SUCCESS")), api_server);
        let refusal = |destinations: &[&str]| {
            let route = |text: &&str| VnicRoute { destination: text.parse().unwrap(), via: None };
            let mut host = HostVnic {
                vnic: vnic("storage", 0x0c, "10.0.64"),
                placement: Placement::Device { link: "ens6".parse().unwrap() },
                table: TableId(1001),
                mtu: Mtu::VCN,
                pod_blocks: Vec::new(),
                on_link: Vec::new(),
                routes: destinations.iter().map(route).collect(),
            };
            let condition = refuse(&mut host, &needed, &PerFamily::default());
            let left = host.routes.iter().map(|route| route.destination.to_string()).collect::<Vec<_>>();
            (condition.map(|it| it.message).unwrap_or_default(), left)
        };
        for (destination, what) in [
            ("10.0.0.0/8", "10.0.0.6/32 (the API server)"),
            ("10.96.0.0/16", "10.96.5.5/32 (Services)"),
            ("10.0.33.128/25", "10.0.33.0/24 (pods)"),
            ("169.254.7.0/24", "169.254.0.0/16 (link-local"),
            ("168.0.0.0/7", "169.254.0.0/16 (link-local"),
            ("0.0.0.0/0", "169.254.0.0/16 (link-local"),
            ("fd00:c1:7::/48", "fd00:c1::/32 (link-local"),
            ("fc00::/7", "fd00:c1::/32 (link-local"),
            ("fd00:96::/32", "fd00:96::1/128 (the API server)"),
        ] {
            let (message, left) = refusal(&["172.16.0.0/12", destination, "fd00:5::/48"]);
            assert!(message.starts_with(&format!("routes are refused: {destination} overlaps {what}")), "{message}");
            assert_eq!(left, ["172.16.0.0/12", "fd00:5::/48"], "{destination}");
        }
        assert_eq!(refusal(&["10.0.32.0/24", "192.168.0.0/16"]).0, "");
        let many = refusal(&["10.96.0.0/16", "10.96.0.0/17", "10.96.4.0/23", "10.96.5.0/24", "10.96.5.5/32"]);
        assert!(many.0.contains(" and 2 more; ") && many.1.is_empty(), "{many:?}");
    }

    #[test]
    fn route_to_the_vnics_subnet_is_refused_in_a_needed_network() {
        let primary = vnic("primary", 0x0a, "10.0.10").addressing;
        let needed = needed(Some(&instance()), Some(&npn("SUCCESS")), Some("10.0.96.9".parse().unwrap()));
        let refusal = |net: &str| {
            let vnic = vnic("storage", 0x0c, net);
            let mut host = HostVnic {
                on_link: vnic.addressing.iter().map(|(_, at)| at.subnet).collect(),
                vnic,
                placement: Placement::Device { link: "ens6".parse().unwrap() },
                table: TableId(1001),
                mtu: Mtu::VCN,
                pod_blocks: Vec::new(),
                routes: Vec::new(),
            };
            let condition = refuse(&mut host, &needed, &primary);
            (condition.map(|it| it.message).unwrap_or_default(), host.on_link.len())
        };
        assert_eq!(refusal("10.0.64"), (String::new(), 1));
        for (net, what) in
            [("10.0.10", "the primary VNIC's subnet"), ("10.0.33", "pods"), ("10.0.96", "the API server")]
        {
            let (message, left) = refusal(net);
            assert!(message.contains(&format!("({what})")) && left == 0, "{net}: {message}");
        }
    }
}
