//! Our nft rules in the kernel's terms: a table for IPv4 and IPv6, and one for ARP, which the first cannot see.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::{IpNetwork, Ipv4Network, Ipv6Network};
use netlink::nft::{
    Chain, ChainKind, Direction, Expression, Hook, LinkMatch, MaskedValue, Protocol, Rule, Table, TableFamily,
};
use vcn::{Family, HOST_LINK_PREFIX, IfName, Mark, NFT_TABLE};

use crate::object::{NEIGHBOUR_RATE, metadata_address};
use crate::{NeighbourTraffic, NftRule, NftRuleKind, Transport};

/// When a rule is asked: its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Source,
    WayIn,
    WayBack,
    Forward,
    WayOut,
    Postrouting,
    Arp,
}

/// The whole tables. Rules known only by their text are left out: no plan contains them.
pub(super) fn tables(rules: &[NftRule]) -> [Table; 2] {
    let of = |stage: Stage| {
        let kinds = rules.iter().filter_map(|rule| rule.kind.as_ref().map(|kind| (kind, &rule.text)));
        kinds
            .filter(|(kind, _)| Stage::of(kind) == stage)
            .map(|(kind, text)| Rule::new(text.clone(), expressions(kind)))
            .collect()
    };
    let chain =
        |name: &str, hook, kind, (priority, stage)| Chain { name: name.into(), hook, kind, priority, rules: of(stage) };
    let table = |family, chains| Table { family, name: NFT_TABLE.to_owned(), chains };
    let inet = table(
        TableFamily::Inet,
        vec![
            // First of all, where others have their raw tables: nothing is looked up for what is dropped here.
            chain("source", Hook::Prerouting, ChainKind::Filter, (-300, Stage::Source)),
            // Around -100, where destinations are translated: kube-proxy's (nftables) own chains are at -110 and -100.
            chain("way-in", Hook::Prerouting, ChainKind::Filter, (-110, Stage::WayIn)),
            chain("way-back", Hook::Prerouting, ChainKind::Filter, (-90, Stage::WayBack)),
            // Not on the way out, where what IPVS translates passes too, whose translation is not visible.
            chain("forward", Hook::Forward, ChainKind::Filter, (0, Stage::Forward)),
            // The usual places: 0 is where filters sit, 100 where sources are translated. Not where packets are forwarded, for
            // what IPVS translates is not: it comes in, and goes out.
            chain("way-out", Hook::Postrouting, ChainKind::Filter, (0, Stage::WayOut)),
            chain("postrouting", Hook::Postrouting, ChainKind::Nat, (100, Stage::Postrouting)),
        ],
    );
    [inet, table(TableFamily::Arp, vec![chain("input", Hook::Input, ChainKind::Filter, (0, Stage::Arp))])]
}

impl Stage {
    const fn of(kind: &NftRuleKind) -> Self {
        match kind {
            NftRuleKind::RememberWayIn { .. } => Self::WayIn,
            NftRuleKind::MarkPackets { .. } => Self::WayBack,
            NftRuleKind::LimitNeighbours { of: NeighbourTraffic::Arp } => Self::Arp,
            NftRuleKind::DropRouters { .. }
            | NftRuleKind::DropLoopback
            | NftRuleKind::DropForeignSource { .. }
            | NftRuleKind::LimitNeighbours { .. }
            | NftRuleKind::DropReturned { .. } => Self::Source,
            NftRuleKind::AcceptTranslated { .. } | NftRuleKind::DropUnused { .. } => Self::Forward,
            NftRuleKind::AcceptMetadataPort { .. }
            | NftRuleKind::DropLinkLocal
            | NftRuleKind::DropMetadataV6
            | NftRuleKind::DropOwnReturned { .. }
            | NftRuleKind::DropMetadataFrom { .. } => Self::WayOut,
            NftRuleKind::MasqueradeMetadata { .. } => Self::Postrouting,
        }
    }
}

fn expressions(kind: &NftRuleKind) -> Vec<Expression> {
    let mut expressions = matches(kind);
    expressions.extend(statements(kind));
    expressions
}

/// Which packets.
fn matches(kind: &NftRuleKind) -> Vec<Expression> {
    let pods = || LinkMatch::Prefix(HOST_LINK_PREFIX.to_owned());
    let from_pods = Expression::Iifname(pods());
    let by = |link: &IfName| Expression::Iifname(LinkMatch::Exact(link.clone()));
    let leaves_by = |link: &IfName| Expression::Oifname(LinkMatch::Exact(link.clone()));
    match kind {
        // Every packet that asks, not the first of a connection alone: so connections older than this table are marked
        // too. Once it is, the destination is not looked up again.
        NftRuleKind::RememberWayIn { link, mark } => vec![
            by(link),
            Expression::CtDirection(Direction::Original),
            Expression::CtMarkNot(masked(*mark)),
            Expression::DestinationIsLocal,
        ],
        NftRuleKind::MarkPackets { mark, answers } => {
            let direction = answers.then_some(Expression::CtDirection(Direction::Reply));
            direction.into_iter().chain([Expression::CtMark(masked(*mark))]).collect()
        }
        NftRuleKind::AcceptMetadataPort { family, transport, port } => {
            vec![from_pods, metadata(*family), protocol(*transport), Expression::DestinationPort(*port)]
        }
        NftRuleKind::MasqueradeMetadata { family, link } => vec![from_pods, metadata(*family), leaves_by(link)],
        NftRuleKind::DropLinkLocal => vec![from_pods, Expression::DestinationNet(LINK_LOCAL)],
        NftRuleKind::DropLoopback => vec![from_pods, Expression::DestinationNet(LOOPBACK)],
        NftRuleKind::LimitNeighbours { of } => [from_pods].into_iter().chain(neighbours(*of)).collect(),
        // What goes to a pod or comes from one, which is almost all, is past each of these after comparing the link it leaves by.
        NftRuleKind::AcceptTranslated { primary } => vec![leaves_by(primary), Expression::DestinationTranslated],
        NftRuleKind::DropUnused { link, primary, block } => {
            vec![leaves_by(primary), by(link), Expression::DestinationNet(*block)]
        }
        NftRuleKind::DropMetadataV6 => vec![from_pods, metadata(Family::Ipv6)],
        // What goes to a pod here, which is almost all that comes in, costs one look-up: the first rule answers it. What is for
        // this host is accepted here; it may be a NodePort that rules of other programs translate to another node's pod.
        NftRuleKind::DropReturned { link } => vec![
            by(link),
            Expression::RouteToDestinationNot(pods()),
            Expression::DestinationIsAnothers,
            Expression::RouteToSource(pods()),
        ],
        NftRuleKind::DropOwnReturned { link } => {
            vec![by(link), Expression::OifnameNot(pods()), Expression::DestinationAsSent, Expression::SourceIsLocal]
        }
        NftRuleKind::DropMetadataFrom { link, family: Family::Ipv4 } => {
            vec![by(link), Expression::DestinationNet(LINK_LOCAL)]
        }
        NftRuleKind::DropMetadataFrom { link, family: Family::Ipv6 } => vec![by(link), metadata(Family::Ipv6)],
        NftRuleKind::DropRouters { message } => {
            vec![from_pods, Expression::L4proto(Protocol::Icmpv6), Expression::Icmpv6Type(message.icmpv6_type())]
        }
        NftRuleKind::DropForeignSource { family } => {
            vec![from_pods, Expression::SourceNetNot(none_yet(*family)), Expression::SourceIsElsewhere]
        }
    }
}

/// What happens to them.
fn statements(kind: &NftRuleKind) -> Vec<Expression> {
    match kind {
        NftRuleKind::RememberWayIn { mark, .. } => vec![Expression::SetCtMark(masked(*mark))],
        NftRuleKind::MarkPackets { mark, .. } => vec![Expression::SetMark(masked(*mark))],
        NftRuleKind::AcceptMetadataPort { .. } | NftRuleKind::AcceptTranslated { .. } => vec![Expression::Accept],
        NftRuleKind::MasqueradeMetadata { .. } => vec![Expression::Counter, Expression::Masquerade],
        NftRuleKind::LimitNeighbours { .. } => {
            vec![Expression::LinkExceeds(NEIGHBOUR_RATE), Expression::Counter, Expression::Drop]
        }
        NftRuleKind::DropLinkLocal
        | NftRuleKind::DropLoopback
        | NftRuleKind::DropUnused { .. }
        | NftRuleKind::DropMetadataV6
        | NftRuleKind::DropReturned { .. }
        | NftRuleKind::DropOwnReturned { .. }
        | NftRuleKind::DropMetadataFrom { .. }
        | NftRuleKind::DropRouters { .. }
        | NftRuleKind::DropForeignSource { .. } => vec![Expression::Counter, Expression::Drop],
    }
}

fn metadata(family: Family) -> Expression {
    Expression::DestinationNet(IpNetwork::from(metadata_address(family)))
}

const fn protocol(transport: Transport) -> Expression {
    Expression::L4proto(match transport {
        Transport::Tcp => Protocol::Tcp,
        Transport::Udp => Protocol::Udp,
    })
}

fn neighbours(of: NeighbourTraffic) -> Vec<Expression> {
    match of {
        NeighbourTraffic::Arp => vec![],
        NeighbourTraffic::LinkLocal => vec![Expression::SourceNet(LINK_LOCAL_V6)],
        NeighbourTraffic::Solicitations => vec![
            Expression::SourceNetNot(LINK_LOCAL_V6),
            Expression::L4proto(Protocol::Icmpv6),
            Expression::Icmpv6Type(NEIGHBOUR_SOLICITATION),
        ],
    }
}

/// The source of a pod without an address, which asks for one from it; such packets are not forwarded.
fn none_yet(family: Family) -> IpNetwork {
    match family {
        Family::Ipv4 => IpNetwork::from(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        Family::Ipv6 => LINK_LOCAL_V6,
    }
}

const fn masked(mark: Mark) -> MaskedValue {
    MaskedValue::new(mark.value, mark.mask)
}

/// RFC 4861
const NEIGHBOUR_SOLICITATION: u8 = 135;

const LOOPBACK: IpNetwork = IpNetwork::V4(match Ipv4Network::new_checked(Ipv4Addr::new(127, 0, 0, 0), 8) {
    Some(net) => net,
    None => panic!(),
});

const LINK_LOCAL: IpNetwork = IpNetwork::V4(match Ipv4Network::new_checked(Ipv4Addr::new(169, 254, 0, 0), 16) {
    Some(net) => net,
    None => panic!(),
});

const LINK_LOCAL_V6: IpNetwork =
    IpNetwork::V6(match Ipv6Network::new_checked(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10) {
        Some(net) => net,
        None => panic!(),
    });
