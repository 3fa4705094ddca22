//! Our nft rules in the kernel's terms.

use std::net::{IpAddr, Ipv4Addr};

use ipnetwork::{IpNetwork, Ipv4Network};
use netlink::nft::{Chain, ChainKind, Expression, Hook, LinkMatch, Protocol, Rule, Table};
use vcn::{HOST_LINK_PREFIX, METADATA_ADDRESS, NFT_TABLE};

use crate::{NftRule, NftRuleKind, Transport};

/// The whole table. Rules known only by their text are left out: nobody asks for those.
pub(super) fn table(rules: &[NftRule]) -> Table {
    let of = |nat: bool| {
        let kinds = rules.iter().filter_map(|rule| rule.kind.as_ref().map(|kind| (kind, &rule.text)));
        kinds
            .filter(|(kind, _)| matches!(kind, NftRuleKind::MasqueradeMetadata { .. }) == nat)
            .map(|(kind, text)| Rule::new(text.clone(), expressions(kind)))
            .collect()
    };
    Table {
        name: NFT_TABLE.to_owned(),
        chains: vec![
            // The usual places: 0 is where filters sit, 100 where sources are translated.
            Chain {
                name: "forward".into(),
                hook: Hook::Forward,
                kind: ChainKind::Filter,
                priority: 0,
                rules: of(false),
            },
            Chain {
                name: "postrouting".into(),
                hook: Hook::Postrouting,
                kind: ChainKind::Nat,
                priority: 100,
                rules: of(true),
            },
        ],
    }
}

fn expressions(kind: &NftRuleKind) -> Vec<Expression> {
    let from_pods = Expression::Iifname(LinkMatch::Prefix(HOST_LINK_PREFIX.to_owned()));
    let metadata = Expression::DestinationNet(IpNetwork::from(IpAddr::V4(METADATA_ADDRESS)));
    match kind {
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

const LINK_LOCAL: IpNetwork = IpNetwork::V4(match Ipv4Network::new_checked(Ipv4Addr::new(169, 254, 0, 0), 16) {
    Some(net) => net,
    None => panic!(),
});
