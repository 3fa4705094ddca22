//! kube-proxy's rules, as it writes them, for one Service with one endpoint.

use std::net::IpAddr;

use vcn::Family;

use super::ipvs;
use super::world::{PORT, Server, World};

/// The port on every node of the Service with externalTrafficPolicy Local.
pub(crate) const LOCAL: u16 = 30080;
/// Of the one with Cluster.
pub(crate) const CLUSTER: u16 = 30081;
/// The port of the Service's own address.
pub(crate) const SERVICE_PORT: u16 = 81;

/// How kube-proxy does its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Iptables,
    Nftables,
    Ipvs,
}

impl Mode {
    /// Makes the Service's endpoint this pod, for both families. Rules of other programs stay.
    pub(crate) fn publish(self, world: &World, endpoint: &Server) {
        if self == Self::Ipvs {
            ipvs::reset(world);
        }
        for family in Family::ALL {
            let Some(pod) = endpoint.address.of(family) else { continue };
            let filled_in = |template| filled_in(template, *pod, &world.own_addresses(family));
            match self {
                Self::Iptables => restore(world, family, &filled_in(include_str!("rules/iptables.rules"))),
                Self::Nftables => {
                    world.on_node("nft", &["-f", "-"], &filled_in(include_str!("rules/nftables.nft")));
                }
                Self::Ipvs => ipvs::publish(world, *pod),
            }
        }
    }
}

/// Takes away what was published in nftables mode.
pub(crate) fn withdraw_nftables(world: &World) {
    for table in ["table ip kube-proxy", "table ip6 kube-proxy"] {
        world.on_node("nft", &[&format!("delete {table}")], "");
    }
}

/// Its own chains are replaced; the jumps to them from the kernel's chains are added once, behind those of other programs.
fn restore(world: &World, family: Family, rules: &str) {
    let (save, restore) = match family {
        Family::Ipv4 => ("iptables-save", "iptables-restore"),
        Family::Ipv6 => ("ip6tables-save", "ip6tables-restore"),
    };
    let jumps = world.on_node(save, &[], "").contains("-j KUBE-SERVICES");
    let is_jump = |line: &str| line.starts_with("-A ") && !line.starts_with("-A KUBE-");
    let lines: Vec<_> = rules.lines().filter(|line| !(jumps && is_jump(line))).collect();
    world.on_node(restore, &["--noflush"], &format!("{}\n", lines.join("\n")));
}

/// The Service's own address.
pub(crate) fn cluster_ip(family: Family) -> IpAddr {
    let text = match family {
        Family::Ipv4 => "10.96.0.10",
        Family::Ipv6 => "fd00:96::10",
    };
    text.parse().unwrap()
}

pub(crate) fn filled_in(template: &str, pod: IpAddr, node: &[IpAddr]) -> String {
    let family = Family::of(pod);
    let (table, header, kind, pods) = match family {
        Family::Ipv4 => ("ip", "ip", "ipv4_addr", "10.0.32.0/24"),
        Family::Ipv6 => ("ip6", "ip6", "ipv6_addr", "2603:c020:0:2::/64"),
    };
    let node: Vec<_> = node.iter().map(ToString::to_string).collect();
    [
        ("@FAMILY@", table.to_owned()),
        ("@IP@", header.to_owned()),
        ("@TYPE@", kind.to_owned()),
        ("@POD@", pod.to_string()),
        ("@POD_PORT@", std::net::SocketAddr::new(pod, PORT).to_string()),
        ("@POD_DASHED@", pod.to_string().replace(':', ".")),
        ("@POD_NETWORK@", pods.to_owned()),
        ("@CLUSTER_IP@", cluster_ip(family).to_string()),
        ("@NODE_IPS@", node.join(", ")),
    ]
    .into_iter()
    .fold(template.to_owned(), |text, (name, value)| text.replace(name, &value))
}
