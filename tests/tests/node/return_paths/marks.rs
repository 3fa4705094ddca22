//! Bits of other programs in packet and connection marks are kept, whichever VNIC gets the request, on the way in and on the way back.

use serde_json::Value;
use vcn::{Family, MARK_MASK, Mark, PRIMARY_MARK, TableId, vnic_mark};

use super::kube_proxy::{CLUSTER, LOCAL, Mode};
use super::surroundings::counted;
use super::world::World;

/// What the rules under test use themselves: kube-proxy's and portmap's bits.
const THEIRS: u32 = 0xe000;
/// All bits of others.
const OTHERS: u32 = !MARK_MASK & !THEIRS;
/// Bits of another program: half of those that we do not use.
const FOREIGN: u32 = 0x5a5a_a5a5 & OTHERS;

/// A VNIC's link and its mark.
type Marked = (String, Mark);

/// One direction of a connection.
struct Way {
    link: String,
    family: Family,
    port: u16,
}

/// The links of the node's VNICs and the marks of what comes in by them, by the tables that their default routes are in.
fn links(world: &World) -> Vec<Marked> {
    let routes = world.on_node("ip", &["-j", "-4", "route", "show", "table", "all"], "");
    let routes: Vec<Value> = serde_json::from_str(&routes).unwrap();
    let defaults = routes.iter().filter(|route| route["dst"] == "default");
    let marked = |route: &Value| {
        let mark = match route["table"].as_str() {
            None => PRIMARY_MARK,
            Some(table) => vnic_mark(TableId(table.parse().unwrap())).unwrap(),
        };
        (route["dev"].as_str().unwrap().to_owned(), mark)
    };
    defaults.map(marked).collect()
}

impl Way {
    fn all(links: &[Marked]) -> Vec<Self> {
        let mut all = Vec::new();
        for (link, _) in links {
            for family in Family::ALL {
                all.extend([LOCAL, CLUSTER].map(|port| Self { link: link.clone(), family, port }));
            }
        }
        all
    }

    /// What nft calls the family.
    fn nfproto(&self) -> &'static str {
        match self.family {
            Family::Ipv4 => "ipv4",
            Family::Ipv6 => "ipv6",
        }
    }

    /// The comment of the rule that counts what is as it must be.
    fn kept(&self, way: &str) -> String {
        format!("{way} by {} port {} {}", self.link, self.port, self.nfproto())
    }
}

/// A table of another program that marks connections and packets with unused bits. It counts what goes to pods, and answers of
/// pods that leave, with those bits and our bits as they must be, by way; and those with anything else.
fn foreign_rules(links: &[Marked]) -> String {
    let rule = |way: &str, path: &Way, by: &str, packet: u32, connection: u32| {
        format!(
            "{by} \"{}\" meta nfproto {} meta mark & {OTHERS:#x} == {FOREIGN:#x} meta mark & {MARK_MASK:#x} == {packet:#x} \
             ct mark & {OTHERS:#x} == {FOREIGN:#x} ct mark & {MARK_MASK:#x} == {connection:#x} counter accept comment \"{}\"\n",
            path.link,
            path.nfproto(),
            path.kept(way)
        )
    };
    let (mut early, mut way_in, mut way_back) = (String::new(), String::new(), String::new());
    for (link, _) in links {
        early += &format!("iifname {link} ct direction original ct mark set ct mark & {MARK_MASK:#x} | {FOREIGN:#x}\n");
    }
    for path in Way::all(links) {
        let (_, Mark { value, .. }) = *links.iter().find(|(link, _)| *link == path.link).unwrap();
        // Only what is looked up by the primary VNIC's mark bears it on the way in, too: for the check of the way back.
        let packet = if value == PRIMARY_MARK.value { value } else { 0 };
        let of_port = |part: &str, rule: String| format!("{part} {} {rule}", path.port);
        way_in += &of_port("meta l4proto tcp ct original proto-dst", rule("in", &path, "iifname", packet, value));
        way_back += &of_port("tcp sport", rule("back", &path, "oifname", value, value));
    }
    let names: Vec<_> = links.iter().map(|(link, _)| link.as_str()).collect();
    let (names, ports) = (names.join(", "), format!("{{ {LOCAL}, {CLUSTER} }}"));
    format!(
        "table inet foreign {{
            chain early {{
                type filter hook prerouting priority -150;
                {early}
                meta mark set meta mark | {FOREIGN:#x}
            }}
            chain way_in {{
                type filter hook forward priority 300;
                meta l4proto != tcp accept
                ct direction reply accept
                {way_in}
                iifname {{ {names} }} meta l4proto tcp ct original proto-dst {ports} counter comment \"lost\"
            }}
            chain way_back {{
                type filter hook postrouting priority 300;
                meta l4proto != tcp accept
                {way_back}
                oifname {{ {names} }} tcp sport {ports} counter comment \"lost\"
            }}
        }}"
    )
}

fn foreign_mark_bits_are_kept_for_any_vnic(mode: Mode) {
    let world = World::start();
    let servers = world.servers();
    let links = links(&world);
    assert_eq!(links.len(), world.node.vnics().len(), "{links:?}");
    world.on_node("nft", &["-f", "-"], &foreign_rules(&links));
    for server in &servers {
        mode.publish(&world, server);
        for family in Family::ALL {
            for address in world.own_addresses(family) {
                for port in [LOCAL, CLUSTER] {
                    let what = format!("{mode:?}, {} reached by {address} port {port}", server.label);
                    let mut connection = world.works(&what, world.connect(address, port));
                    world.works(&what, connection.echo());
                }
            }
        }
    }
    let listing = world.on_node("nft", &["list", "table", "inet", "foreign"], "");
    assert_eq!(counted(&listing, "lost"), 0, "{listing}");
    for path in Way::all(&links) {
        for way in ["in", "back"] {
            // A connection's first packets, of a connection to either server.
            assert!(counted(&listing, &path.kept(way)) > 3, "{}: {listing}", path.kept(way));
        }
    }
    world.assert_nothing_spoofed();
}

#[test]
fn foreign_mark_bits_are_kept_for_any_vnic_with_iptables() {
    foreign_mark_bits_are_kept_for_any_vnic(Mode::Iptables);
}

#[test]
fn foreign_mark_bits_are_kept_for_any_vnic_with_nftables() {
    foreign_mark_bits_are_kept_for_any_vnic(Mode::Nftables);
}
