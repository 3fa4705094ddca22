//! Rates per link: a set that the kernel itself fills, with one element per link, and in each element a limit.

use netlink_packet_core::{DefaultNla, NLA_F_NESTED, Nla};
use netlink_packet_netfilter::nftables::{
    Expressions, NfTablesMessage, SetAttribute, SetDescription, SetFlags, SetMessage,
};

use super::{Element, register};
use crate::nft::{Expression, Rate, Table};

/// The set of a table with rates.
const SET: &str = "links";

/// How many links are counted at a time: far more than a node has. Packets of a link that finds no room are not limited, and
/// only links take room, which pods cannot make.
const MAX_LINKS: u32 = 4096;

/// After so long without a packet, in milliseconds, a link is forgotten. Its limit is full again by then.
const FORGOTTEN: u64 = 10_000;

// linux/netfilter/nf_tables.h
const NFTA_DYNSET_SET_NAME: u16 = 1;
const NFTA_DYNSET_OP: u16 = 3;
const NFTA_DYNSET_SREG_KEY: u16 = 4;
const NFTA_DYNSET_EXPR: u16 = 7;
/// The element is made, or its timeout starts again.
const NFT_DYNSET_OP_UPDATE: u32 = 1;
const NFTA_LIMIT_RATE: u16 = 1;
const NFTA_LIMIT_UNIT: u16 = 2;
const NFTA_LIMIT_BURST: u16 = 3;
const NFTA_LIMIT_FLAGS: u16 = 5;
/// What exceeds the limit matches.
const NFT_LIMIT_F_INV: u32 = 1;
/// The unit of a rate, in seconds.
const SECOND: u64 = 1;
/// The `nft` program's number for the type of a link's index, by which it shows names.
const TYPE_IFACE_INDEX: u32 = 20;
const INDEX_LEN: u32 = 4;

/// The set that a table's rates need, if it has any.
pub(in crate::nft) fn set(table: &Table) -> Option<NfTablesMessage> {
    let mut expressions = table.chains.iter().flat_map(|chain| &chain.rules).flat_map(|rule| &rule.expressions);
    expressions.any(|expression| matches!(expression, Expression::LinkExceeds(_))).then(|| {
        NfTablesMessage::NewSet(SetMessage {
            attributes: vec![
                SetAttribute::Table(table.name.clone()),
                SetAttribute::Name(SET.to_owned()),
                SetAttribute::Flags(SetFlags::Eval | SetFlags::Timeout),
                SetAttribute::KeyType(TYPE_IFACE_INDEX),
                SetAttribute::KeyLen(INDEX_LEN),
                // The kernel wants one; rules here refer to the set by its name.
                SetAttribute::Id(1),
                SetAttribute::Timeout(FORGOTTEN),
                SetAttribute::Description(vec![SetDescription::Size(MAX_LINKS)]),
            ],
        })
    })
}

/// Whether the link whose index is in the register exceeds a rate.
pub(super) fn exceeds(rate: Rate) -> Element {
    let limit = Expressions::Other {
        expression_type: "limit".to_owned(),
        attributes: vec![
            DefaultNla::new(NFTA_LIMIT_RATE, u64::from(rate.per_second).to_be_bytes().to_vec()),
            DefaultNla::new(NFTA_LIMIT_UNIT, SECOND.to_be_bytes().to_vec()),
            DefaultNla::new(NFTA_LIMIT_BURST, rate.burst.to_be_bytes().to_vec()),
            DefaultNla::new(NFTA_LIMIT_FLAGS, NFT_LIMIT_F_INV.to_be_bytes().to_vec()),
        ],
    };
    let limit = Element::from(limit);
    let mut nested = vec![0; limit.value_len()];
    limit.emit_value(&mut nested);
    let attributes = vec![
        DefaultNla::new(NFTA_DYNSET_SET_NAME, [SET.as_bytes(), &[0]].concat()),
        DefaultNla::new(NFTA_DYNSET_OP, NFT_DYNSET_OP_UPDATE.to_be_bytes().to_vec()),
        DefaultNla::new(NFTA_DYNSET_SREG_KEY, register().to_be_bytes().to_vec()),
        DefaultNla::new(NFTA_DYNSET_EXPR | NLA_F_NESTED, nested),
    ];
    Expressions::Other { expression_type: "dynset".to_owned(), attributes }.into()
}
