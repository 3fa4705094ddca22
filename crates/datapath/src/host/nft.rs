//! Our nft tables, one for IPv4 and IPv6 and one for ARP, which the first cannot see: what pods may send and be sent, and by
//! which VNIC answers leave.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;
use netlink::nft::{
    Chain, ChainKind, Direction, Expression, Hook, LinkMatch, Protocol, Rate, Rule, Table, TableFamily,
};
use vcn::{Family, HOST_LINK_PREFIX, IfName, METADATA_ADDRESS_V6, Mark, NFT_TABLE, PRIMARY_MARK, vnic_mark};

use super::{HostNetwork, HostVnic, PodServices, metadata_address};
use crate::object::{net_v4, net_v6};

/// The packets of each kind that a pod may send. The kernel forgets no entry of its tables within 5 s, so that one pod
/// holds 70 of their 1024 entries.
const NEIGHBOUR_RATE: Rate = Rate { per_second: 10, burst: 20 };

// ICMPv6 types (RFC 4861).
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const REDIRECT: u8 = 137;

const LOOPBACK: IpNetwork = net_v4(Ipv4Addr::new(127, 0, 0, 0), 8);
const LINK_LOCAL: IpNetwork = net_v4(Ipv4Addr::new(169, 254, 0, 0), 16);
const LINK_LOCAL_V6: IpNetwork = net_v6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10);

/// The whole tables, in the order they are observed in. Sorted within chains: they are to be the same in whatever order VNICs
/// are listed.
pub(super) fn tables(network: &HostNetwork, pods: PodServices) -> Vec<Table> {
    let primary = &network.primary;
    let secondary = network.vnics.iter().filter_map(|vnic| Some((vnic_mark(vnic.table)?, vnic.placement.link())));
    let marked: BTreeMap<Mark, &IfName> = secondary.chain([(PRIMARY_MARK, primary)]).collect();
    // Those that there is no mark for, too.
    let links: BTreeSet<&IfName> = network.vnics.iter().map(|vnic| vnic.placement.link()).chain([primary]).collect();
    let mut source = sent_by_pods(pods);
    source.extend(links.iter().map(|link| returned(link)));
    let way_in = marked.iter().map(|(mark, link)| remember_way_in(link, *mark)).collect();
    let way_back = marked.keys().map(|mark| mark_packets(*mark)).collect();
    let services = Family::ALL.into_iter().flat_map(|family| services(family, pods));
    let way_out = services.chain(links.iter().flat_map(|link| from_outside(link))).collect();
    let masqueraded = pods.families().map(|family| masquerade(family, primary)).collect();
    let filter =
        |name: &str, hook, priority, rules| Chain { name: name.into(), hook, kind: ChainKind::Filter, priority, rules };
    let chains = vec![
        // First of all, where others have their raw tables: nothing is looked up for what is dropped here.
        filter("source", Hook::Prerouting, -300, source),
        // Around -100, where destinations are translated: kube-proxy's (nftables) own chains are at -110 and -100.
        filter("way-in", Hook::Prerouting, -110, way_in),
        filter("way-back", Hook::Prerouting, -90, way_back),
        // Not on the way out, where what IPVS translates passes too, whose translation is not visible.
        filter("forward", Hook::Forward, 0, unused(network)),
        // The usual places: 0 is where filters sit, 100 where sources are translated. Not where packets are forwarded, for
        // what IPVS translates is not: it comes in, and goes out.
        filter("way-out", Hook::Postrouting, 0, way_out),
        Chain { kind: ChainKind::Nat, ..filter("postrouting", Hook::Postrouting, 100, masqueraded) },
    ];
    let arp = vec![filter("input", Hook::Input, 0, vec![limited("ARP", [])])];
    let table = |(family, chains)| Table { family, name: NFT_TABLE.to_owned(), chains };
    [(TableFamily::Inet, chains), (TableFamily::Arp, arp)].map(table).into()
}

/// What is dropped here is dropped whatever families pods have: the kernel may know IPv6, and then the host hears them.
fn sent_by_pods(pods: PodServices) -> Vec<Rule> {
    // No pod is a router. A host whose kernel does not forward IPv6 (it has IPv4 pods alone, say) believes any router
    // advertisement on a link, and link-local sources are anybody's.
    let as_router =
        |what, kind| drop_of_pods(what, [Expression::L4proto(Protocol::Icmpv6), Expression::Icmpv6Type(kind)]);
    let mut rules = vec![
        as_router("router advertisements", ROUTER_ADVERTISEMENT),
        as_router("IPv6 redirects", REDIRECT),
        // What is on the host's loopback is for the host alone. portmap lets its links carry such packets (`route_localnet`)
        // where it translates sources. IPv6 needs no rule: the kernel itself drops what comes in by another link for ::1.
        drop_of_pods("to 127.0.0.0/8", [Expression::DestinationNet(LOOPBACK)]),
    ];
    // A pod sends from its own addresses alone: the way back to where a packet claims to come from must be by the link
    // that it came by. The fabric sees to it for what leaves the node, but not between this node's pods, nor for one that
    // takes the address of another on the same VNIC. Looked up in the routes to pods, so it is one rule for all of them.
    rules.extend(Family::ALL.into_iter().filter(|_| !pods.may_spoof).map(|family| {
        let what = format!("from {family} addresses that are not its own");
        let matches = [Expression::SourceNetNot(none_yet(family)), Expression::SourceIsElsewhere];
        drop_of_pods(&what, matches)
    }));
    // Behind the check of sources, so that what it drops is not counted. First whatever is sent from link-local addresses:
    // solicitations, and what the host would answer. A pod can have as many of them as it likes. Other addresses are a pod's own
    // unless pods may spoof.
    rules.push(limited("from fe80::/10", [Expression::SourceNet(LINK_LOCAL_V6)]));
    rules.push(limited(
        "neighbor solicitations from other addresses",
        [
            Expression::SourceNetNot(LINK_LOCAL_V6),
            Expression::L4proto(Protocol::Icmpv6),
            Expression::Icmpv6Type(NEIGHBOUR_SOLICITATION),
        ],
    ));
    rules
}

/// The source of a pod without an address, which requests one from it; such packets are not forwarded.
const fn none_yet(family: Family) -> IpNetwork {
    match family {
        Family::Ipv4 => const { net_v4(Ipv4Addr::UNSPECIFIED, 32) },
        Family::Ipv6 => LINK_LOCAL_V6,
    }
}

/// A pod has few neighbours to resolve. What it sends beyond a rate is dropped, for each makes an entry of the host's tables of
/// neighbours, which have room for 1024 as a rule.
fn limited<const N: usize>(what: &str, matches: [Expression; N]) -> Rule {
    let what = format!("{what}, over {} a second per link", NEIGHBOUR_RATE.per_second);
    drop_of_pods(&what, matches.into_iter().chain([Expression::LinkExceeds(NEIGHBOUR_RATE)]))
}

/// What a pod sent comes back: its VNIC's table leads to the router, and the router to the VNIC whose address it was for.
/// No pod here has that address (any more). The rule from the pod would send it round again, until its hop limit ends.
///
/// What goes to a pod here, which is almost all that comes in, costs one look-up: the first rule answers it. What is for
/// this host is accepted here; it may be a NodePort that rules of other programs translate to another node's pod.
fn returned(link: &IfName) -> Rule {
    dropped(
        format!("in by {link} from a pod of this node to none of it"),
        [
            by(link),
            Expression::RouteToDestinationNot(pod_links()),
            Expression::DestinationIsAnotherHost,
            Expression::RouteToSource(pod_links()),
        ],
    )
}

/// What comes in by this link, for this host, makes its connection's mark this one: what is answered on it, later and
/// perhaps by a pod, has to leave there. Before the address is translated, for after it the packet is for a pod.
///
/// Every packet of a request, not the first of a connection alone: so connections older than this table are marked
/// too. Once it is, the destination is not looked up again.
fn remember_way_in(link: &IfName, mark: Mark) -> Rule {
    Rule::new(
        format!("in by {link} for this host: connection mark {mark}"),
        vec![
            by(link),
            Expression::CtDirection(Direction::Original),
            Expression::CtMarkNot(mark),
            Expression::DestinationIsLocal,
            Expression::SetCtMark(mark),
        ],
    )
}

/// Packets of connections of this mark get it too, for the rule that routes by it. After addresses are translated:
/// what is on its way to a Service's address is not looked at, for it has none of our marks.
///
/// Answers alone. What is requested through a secondary VNIC may have to go to where the VNIC's table does not lead (a container's
/// bridge). Through the primary VNIC, requests and answers are marked. The main table routes the requests anyway. Programs that
/// check with the mark whether the way back is through the same link find that it is (firewalld's IPv6_rpfilter, src_valid_mark).
fn mark_packets(mark: Mark) -> Rule {
    let marks = [Expression::CtMark(mark), Expression::SetMark(mark)];
    if mark == PRIMARY_MARK {
        return Rule::new(format!("in connections of mark {mark}: mark {mark}"), marks);
    }
    let answers: Vec<Expression> = [Expression::CtDirection(Direction::Reply)].into_iter().chain(marks).collect();
    Rule::new(format!("answers in connections of mark {mark}: mark {mark}"), answers)
}

/// What comes in by a VNIC for an address of its subnet was for a pod. No pod has the address now, so that the main table would
/// have it sent back to the VCN. Packets whose destination was translated (a NodePort, a hostPort) may leave by the primary
/// VNIC, whatever it is now.
///
/// What goes to a pod or comes from one, which is almost all, is past each of these after comparing the link it leaves by.
fn unused(network: &HostNetwork) -> Vec<Rule> {
    let primary = &network.primary;
    let of = |vnic: &HostVnic| vnic.pod_blocks.iter().map(|block| (vnic.placement.link().clone(), *block)).collect();
    let blocks: BTreeSet<(IfName, IpNetwork)> = network.vnics.iter().flat_map::<Vec<_>, _>(of).collect();
    let mut rules = vec![Rule::new(
        format!("forwarded to a translated destination, out by {primary}: accept"),
        vec![out_by(primary), Expression::DestinationTranslated, Expression::Accept],
    )];
    rules.extend(blocks.iter().map(|(link, block)| {
        let text = format!("in by {link} to {block}, which no pod here has, out by {primary}");
        dropped(text, [out_by(primary), by(link), Expression::DestinationNet(*block)])
    }));
    rules
}

/// The ports of the metadata address that pods may query: the VCN resolver, the time server and (where allowed) the metadata
/// service. What else may answer there is not for pods, and the rest of 169.254.0.0/16 is the host's own (iSCSI boot disks).
fn services(family: Family, pods: PodServices) -> Vec<Rule> {
    let ports = [(Protocol::Udp, "udp 53", 53), (Protocol::Tcp, "tcp 53", 53), (Protocol::Udp, "udp 123", 123)];
    let metadata = pods.may_use_metadata.then_some((Protocol::Tcp, "tcp 80", 80));
    let ports = ports.into_iter().chain(metadata).filter(|_| pods.has(family));
    let mut rules: Vec<Rule> = ports
        .map(|(protocol, port, number)| {
            let (protocol, number) = (Expression::L4proto(protocol), Expression::DestinationPort(number));
            Rule::new(
                format!("{HOST_LINK_PREFIX}* to {} {port}: accept", metadata_address(family)),
                vec![from_pods(), to_metadata(family), protocol, number, Expression::Accept],
            )
        })
        .collect();
    rules.push(match family {
        Family::Ipv4 => {
            let rest = [Expression::DestinationNet(LINK_LOCAL)];
            drop_of_pods("to the rest of 169.254.0.0/16", rest)
        }
        Family::Ipv6 => drop_of_pods(&format!("to other ports of {METADATA_ADDRESS_V6}"), [to_metadata(family)]),
    });
    rules
}

/// A packet that comes in by a VNIC must not leave in the primary VNIC's name, whichever program translates its destination: the
/// metadata service hands out the instance's credentials. Nor are the boot disks his. What this host itself sent likewise.
/// (IPv6 only: the kernel drops IPv4 packets from its own addresses.)
fn from_outside(link: &IfName) -> [Rule; 3] {
    let metadata = |to: &str, it| dropped(format!("in by {link} to {to}"), [by(link), it]);
    [
        metadata("169.254.0.0/16", Expression::DestinationNet(LINK_LOCAL)),
        metadata(&METADATA_ADDRESS_V6.to_string(), to_metadata(Family::Ipv6)),
        dropped(
            format!("in by {link} from this node to elsewhere"),
            [by(link), Expression::OifnameNot(pod_links()), Expression::DestinationAsSent, Expression::SourceIsLocal],
        ),
    ]
}

/// Pods reach the VCN resolver, the time server and (where allowed) the metadata service as the primary VNIC,
/// the only one those answer.
fn masquerade(family: Family, primary: &IfName) -> Rule {
    Rule::new(
        format!("pods to {} by {primary}: masquerade, random port", metadata_address(family)),
        vec![from_pods(), to_metadata(family), out_by(primary), Expression::Counter, Expression::Masquerade],
    )
}

fn drop_of_pods(what: &str, matches: impl IntoIterator<Item = Expression>) -> Rule {
    dropped(format!("{HOST_LINK_PREFIX}* {what}"), [from_pods()].into_iter().chain(matches))
}

fn dropped(what: String, matches: impl IntoIterator<Item = Expression>) -> Rule {
    let expressions: Vec<Expression> = matches.into_iter().chain([Expression::Counter, Expression::Drop]).collect();
    Rule::new(what + ": drop", expressions)
}

fn pod_links() -> LinkMatch {
    LinkMatch::Prefix(HOST_LINK_PREFIX.to_owned())
}

fn from_pods() -> Expression {
    Expression::Iifname(pod_links())
}

fn by(link: &IfName) -> Expression {
    Expression::Iifname(link.clone().into())
}

fn out_by(link: &IfName) -> Expression {
    Expression::Oifname(link.clone().into())
}

fn to_metadata(family: Family) -> Expression {
    Expression::DestinationNet(IpNetwork::from(metadata_address(family)))
}
