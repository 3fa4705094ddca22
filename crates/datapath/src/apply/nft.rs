//! Our nft rules in the kernel's terms.

use std::net::{IpAddr, Ipv4Addr};

use ipnetwork::{IpNetwork, Ipv4Network};
use netlink::nft::{Chain, ChainKind, Direction, Expression, Hook, LinkMatch, Masked, Protocol, Rule, Table};
use vcn::{HOST_LINK_PREFIX, METADATA_ADDRESS, Mark, NFT_TABLE};

use crate::{NftRule, NftRuleKind, Transport};

/// When a rule is asked: its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    WayIn,
    WayBack,
    Forward,
    Postrouting,
}

/// The whole table. Rules known only by their text are left out: nobody asks for those.
pub(super) fn table(rules: &[NftRule]) -> Table {
    let of = |stage: Stage| {
        let kinds = rules.iter().filter_map(|rule| rule.kind.as_ref().map(|kind| (kind, &rule.text)));
        kinds
            .filter(|(kind, _)| Stage::of(kind) == stage)
            .map(|(kind, text)| Rule::new(text.clone(), expressions(kind)))
            .collect()
    };
    let chain =
        |name: &str, hook, kind, (priority, stage)| Chain { name: name.into(), hook, kind, priority, rules: of(stage) };
    Table {
        name: NFT_TABLE.to_owned(),
        chains: vec![
            // Around -100, where destinations are translated: kube-proxy's (nftables) own chains are at -110 and -100.
            chain("way-in", Hook::Prerouting, ChainKind::Filter, (-110, Stage::WayIn)),
            chain("way-back", Hook::Prerouting, ChainKind::Filter, (-90, Stage::WayBack)),
            // The usual places: 0 is where filters sit, 100 where sources are translated.
            chain("forward", Hook::Forward, ChainKind::Filter, (0, Stage::Forward)),
            chain("postrouting", Hook::Postrouting, ChainKind::Nat, (100, Stage::Postrouting)),
        ],
    }
}

impl Stage {
    const fn of(kind: &NftRuleKind) -> Self {
        match kind {
            NftRuleKind::RememberWayIn { .. } => Self::WayIn,
            NftRuleKind::MarkPackets { .. } => Self::WayBack,
            NftRuleKind::AcceptMetadataPort { .. } | NftRuleKind::DropLinkLocal => Self::Forward,
            NftRuleKind::MasqueradeMetadata { .. } => Self::Postrouting,
        }
    }
}

fn expressions(kind: &NftRuleKind) -> Vec<Expression> {
    let from_pods = Expression::Iifname(LinkMatch::Prefix(HOST_LINK_PREFIX.to_owned()));
    let metadata = Expression::DestinationNet(IpNetwork::from(IpAddr::V4(METADATA_ADDRESS)));
    match kind {
        // Every packet that asks, not the first of a connection alone: so connections older than this table are marked
        // too. Once it is, the destination is not looked up again.
        NftRuleKind::RememberWayIn { link, mark } => vec![
            Expression::Iifname(LinkMatch::Exact(link.clone())),
            Expression::CtDirection(Direction::Original),
            Expression::CtMarkNot(masked(*mark)),
            Expression::DestinationIsLocal,
            Expression::SetCtMark(masked(*mark)),
        ],
        NftRuleKind::MarkPackets { mark, answers } => {
            let direction = answers.then_some(Expression::CtDirection(Direction::Reply));
            let marks = [Expression::CtMark(masked(*mark)), Expression::SetMark(masked(*mark))];
            direction.into_iter().chain(marks).collect()
        }
        NftRuleKind::AcceptMetadataPort { transport, port } => vec![
            from_pods,
            metadata,
            Expression::L4proto(match transport {
                Transport::Tcp => Protocol::Tcp,
                Transport::Udp => Protocol::Udp,
            }),
            Expression::DestinationPort(*port),
            Expression::Accept,
        ],
        NftRuleKind::MasqueradeMetadata { link } => vec![
            from_pods,
            metadata,
            Expression::Oifname(LinkMatch::Exact(link.clone())),
            Expression::Counter,
            Expression::Masquerade,
        ],
        NftRuleKind::DropLinkLocal => {
            vec![from_pods, Expression::DestinationNet(LINK_LOCAL), Expression::Counter, Expression::Drop]
        }
    }
}

const fn masked(mark: Mark) -> Masked {
    Masked::new(mark.value, mark.mask)
}

const LINK_LOCAL: IpNetwork = IpNetwork::V4(match Ipv4Network::new_checked(Ipv4Addr::new(169, 254, 0, 0), 16) {
    Some(net) => net,
    None => panic!(),
});
