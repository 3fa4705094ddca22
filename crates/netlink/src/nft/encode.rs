//! Our nouns as nf_tables' wire format: every match loads a register and compares it, every statement is one expression.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netlink_packet_core::DefaultNla;
use netlink_packet_netfilter::nftables::{
    Bitwise, ChainAttribute, ChainMessage, Cmp, DataAttribute, ExpressionAttribute, Expressions, Hook as WireHook,
    HookNumber, Immediate, ListAttribute, Meta, MetaKey, NfTablesMessage, Operator, Payload, Register, RuleAttribute,
    RuleMessage, TableAttribute, TableMessage, Verdict, VerdictAttribute,
};

use vcn::Mark;

use super::{Chain, Direction, Expression, LinkMatch, Rule, TableFamily};
use crate::error::Cause;

mod rate;

pub(super) use rate::set;

/// Family, version and resource, at the beginning of every netfilter message.
pub(super) const HEADER_LEN: usize = 4;

/// Every match uses the first register; none outlives its comparison.
const REGISTER: Register = Register::Reg1;

// linux/netfilter/nf_tables.h, for the expressions that netlink-packet-netfilter does not type.
const NFTA_MASQ_FLAGS: u16 = 1;
/// Two connections that are translated at the same time seldom get the same port; without it they get the first free one, and the
/// packet of one is lost.
const NF_NAT_RANGE_PROTO_RANDOM_FULLY: u32 = 1 << 4;
const NFTA_CT_DREG: u16 = 1;
const NFTA_CT_KEY: u16 = 2;
const NFTA_CT_SREG: u16 = 4;
const NFT_CT_DIRECTION: u32 = 1;
const NFT_CT_STATUS: u32 = 2;
const NFT_CT_MARK: u32 = 3;
const NFTA_FIB_DREG: u16 = 1;
const NFTA_FIB_RESULT: u16 = 2;
const NFTA_FIB_FLAGS: u16 = 3;
/// linux/netfilter/nf_conntrack_common.h: its destination was translated.
const IPS_DST_NAT: u32 = 0x20;
const NFT_FIB_RESULT_OIF: u32 = 1;
const NFT_FIB_RESULT_OIFNAME: u32 = 2;
const NFT_FIB_RESULT_ADDRTYPE: u32 = 3;
const NFTA_FIB_F_SADDR: u32 = 1;
const NFTA_FIB_F_DADDR: u32 = 2;
const NFTA_FIB_F_IIF: u32 = 8;
const NFT_PAYLOAD_NETWORK_HEADER: u32 = 1;
const NFT_PAYLOAD_TRANSPORT_HEADER: u32 = 2;
const NF_DROP: u32 = 0;
const NF_ACCEPT: u32 = 1;
const NFPROTO_IPV4: u8 = 2;
const NFPROTO_IPV6: u8 = 10;

/// A comment's type among a rule's user data, as the `nft` program reads it.
pub(super) const COMMENT: u8 = 0;

type Element = ListAttribute<ExpressionAttribute>;
type Elements = Vec<Element>;

pub(super) fn table(name: &str) -> TableMessage {
    TableMessage { attributes: vec![TableAttribute::Name(name.to_owned())] }
}

pub(super) fn chain(family: TableFamily, table: &str, chain: &Chain) -> Result<NfTablesMessage, Cause> {
    let hook = chain.hook.number(family).ok_or(Cause::Invalid("the table's family has no such hook"))?;
    Ok(NfTablesMessage::NewChain(ChainMessage {
        attributes: vec![
            ChainAttribute::Table(table.to_owned()),
            ChainAttribute::Name(chain.name.clone()),
            ChainAttribute::Hook(vec![
                WireHook::Number(HookNumber::Other(hook)),
                WireHook::Priority(u32::from_ne_bytes(chain.priority.to_ne_bytes())),
            ]),
            ChainAttribute::Type(chain.kind.to_string()),
            ChainAttribute::Policy(NF_ACCEPT),
        ],
    }))
}

pub(super) fn rule(table: &str, chain: &str, rule: &Rule) -> Result<NfTablesMessage, Cause> {
    let mut elements = Vec::with_capacity(rule.expressions.len() * 3);
    for expression in &rule.expressions {
        append(expression, &mut elements)?;
    }
    let mut attributes = vec![
        RuleAttribute::Table(table.to_owned()),
        RuleAttribute::Chain(chain.to_owned()),
        RuleAttribute::Expressions(elements),
    ];
    if !rule.comment.is_empty() {
        attributes.push(RuleAttribute::UserData(comment(&rule.comment)?));
    }
    Ok(NfTablesMessage::NewRule(RuleMessage { attributes }))
}

/// Type, length, text with its closing NUL.
fn comment(text: &str) -> Result<Vec<u8>, Cause> {
    if text.len() > super::COMMENT_MAX || text.contains('\0') {
        return Err(Cause::Invalid("a rule's comment is longer than 127 bytes or holds a NUL"));
    }
    let length = u8::try_from(text.len() + 1).map_err(|_| Cause::Invalid("a rule's comment is too long"))?;
    let mut data = vec![COMMENT, length];
    data.extend_from_slice(text.as_bytes());
    data.push(0);
    Ok(data)
}

fn append(expression: &Expression, to: &mut Elements) -> Result<(), Cause> {
    use Operator::{Equal, NotEqual};
    match expression {
        Expression::Iifname(link) => link_name(load_meta(MetaKey::Iifname), Equal, link, to)?,
        Expression::Oifname(link) => link_name(load_meta(MetaKey::Oifname), Equal, link, to)?,
        Expression::OifnameNot(link) => link_name(load_meta(MetaKey::Oifname), NotEqual, link, to)?,
        Expression::L4proto(protocol) => matched(load_meta(MetaKey::L4Proto), &[protocol.number()], to),
        Expression::SourceNet(network) => address(*network, Side::Source, Equal, to),
        Expression::DestinationNet(network) => address(*network, Side::Destination, Equal, to),
        Expression::SourceNetNot(network) => address(*network, Side::Source, NotEqual, to),
        Expression::DestinationPort(port) => {
            matched(load_payload(NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2), &port.to_be_bytes(), to);
        }
        Expression::Icmpv6Type(number) => matched(load_payload(NFT_PAYLOAD_TRANSPORT_HEADER, 0, 1), &[*number], to),
        Expression::CtMark(mark) => match_masked(load_ct(NFT_CT_MARK), *mark, Equal, to),
        Expression::CtMarkNot(mark) => match_masked(load_ct(NFT_CT_MARK), *mark, NotEqual, to),
        Expression::CtDirection(direction) => {
            matched(load_ct(NFT_CT_DIRECTION), &[u8::from(*direction == Direction::Reply)], to);
        }
        Expression::DestinationAsSent => translated(Equal, to),
        Expression::DestinationTranslated => translated(NotEqual, to),
        Expression::DestinationIsLocal => address_type(NFTA_FIB_F_DADDR, libc::RTN_LOCAL, to),
        Expression::DestinationIsAnotherHost => address_type(NFTA_FIB_F_DADDR, libc::RTN_UNICAST, to),
        Expression::SourceIsLocal => address_type(NFTA_FIB_F_SADDR, libc::RTN_LOCAL, to),
        // The index of no link.
        Expression::SourceIsElsewhere => {
            matched(fib(NFT_FIB_RESULT_OIF, NFTA_FIB_F_SADDR | NFTA_FIB_F_IIF), &0_u32.to_ne_bytes(), to);
        }
        Expression::RouteToSource(link) => link_name(fib(NFT_FIB_RESULT_OIFNAME, NFTA_FIB_F_SADDR), Equal, link, to)?,
        Expression::RouteToDestinationNot(link) => {
            link_name(fib(NFT_FIB_RESULT_OIFNAME, NFTA_FIB_F_DADDR), NotEqual, link, to)?;
        }
        Expression::SetMark(mark) => {
            set_masked(*mark, load_meta(MetaKey::Mark), to);
            to.push(Expressions::Meta(vec![Meta::Key(MetaKey::Mark), Meta::SourceRegister(REGISTER)]).into());
        }
        Expression::SetCtMark(mark) => {
            set_masked(*mark, load_ct(NFT_CT_MARK), to);
            to.push(raw("ct", &[(NFTA_CT_KEY, NFT_CT_MARK), (NFTA_CT_SREG, register())]));
        }
        Expression::LinkExceeds(rate) => to.extend([load_meta(MetaKey::Iif), rate::exceeds(*rate)]),
        Expression::Counter => to.push(raw("counter", &[])),
        Expression::Masquerade => to.push(raw("masq", &[(NFTA_MASQ_FLAGS, NF_NAT_RANGE_PROTO_RANDOM_FULLY)])),
        Expression::Accept => to.push(verdict(NF_ACCEPT)),
        Expression::Drop => to.push(verdict(NF_DROP)),
    }
    Ok(())
}

fn matched(load: Element, value: &[u8], to: &mut Elements) {
    to.extend([load, compare(Operator::Equal, value.to_vec())]);
}

/// Compares a connection's bit for a translated destination with zero.
fn translated(operator: Operator, to: &mut Elements) {
    let bit = mask(&IPS_DST_NAT.to_ne_bytes(), &[0; 4]);
    to.extend([load_ct(NFT_CT_STATUS), bit, compare(operator, vec![0; 4])]);
}

/// The kernel compares as many bytes as it is given: a whole name with its padding, or a beginning.
fn link_name(load: Element, operator: Operator, link: &LinkMatch, to: &mut Elements) -> Result<(), Cause> {
    let bytes = match link {
        LinkMatch::Exact(name) => {
            let mut bytes = name.as_str().as_bytes().to_vec();
            bytes.resize(libc::IFNAMSIZ, 0);
            bytes
        }
        LinkMatch::Prefix(prefix) if (1..libc::IFNAMSIZ).contains(&prefix.len()) => prefix.as_bytes().to_vec(),
        LinkMatch::Prefix(_) => return Err(Cause::Invalid("a link name's prefix is empty or longer than 15 bytes")),
    };
    to.push(load);
    to.push(compare(operator, bytes));
    Ok(())
}

fn address_type(side: u32, kind: u8, to: &mut Elements) {
    to.push(fib(NFT_FIB_RESULT_ADDRTYPE, side));
    to.push(compare(Operator::Equal, u32::from(kind).to_ne_bytes().to_vec()));
}

#[derive(Clone, Copy)]
enum Side {
    Source,
    Destination,
}

fn address(network: IpNetwork, side: Side, operator: Operator, to: &mut Elements) {
    let (family, bytes, offsets) = match network.network() {
        IpAddr::V4(address) => (NFPROTO_IPV4, address.octets().to_vec(), (12, 16)),
        IpAddr::V6(address) => (NFPROTO_IPV6, address.octets().to_vec(), (8, 24)),
    };
    let whole = match network.mask() {
        IpAddr::V4(mask) => mask.octets().to_vec(),
        IpAddr::V6(mask) => mask.octets().to_vec(),
    };
    // The chain sees both families.
    to.push(load_meta(MetaKey::Nfproto));
    to.push(compare(Operator::Equal, vec![family]));
    let offset = match side {
        Side::Source => offsets.0,
        Side::Destination => offsets.1,
    };
    to.push(load_payload(NFT_PAYLOAD_NETWORK_HEADER, offset, u32::try_from(bytes.len()).unwrap_or(0)));
    if whole.iter().any(|byte| *byte != 0xff) {
        to.push(mask(&whole, &vec![0; whole.len()]));
    }
    to.push(compare(operator, bytes));
}

fn match_masked(load: Element, mark: Mark, operator: Operator, to: &mut Elements) {
    to.push(load);
    if mark.mask != u32::MAX {
        to.push(mask(&mark.mask.to_ne_bytes(), &[0; 4]));
    }
    to.push(compare(operator, mark.value.to_ne_bytes().to_vec()));
}

/// Leaves in the register the old value with the bits under the mask replaced.
fn set_masked(mark: Mark, load: Element, to: &mut Elements) {
    let value = mark.value.to_ne_bytes();
    if mark.mask == u32::MAX {
        let data = DataAttribute::Value(value.to_vec());
        to.push(Expressions::Immediate(vec![Immediate::DestinationRegister(REGISTER), Immediate::Data(data)]).into());
    } else {
        to.push(load);
        to.push(mask(&(!mark.mask).to_ne_bytes(), &value));
    }
}

fn load_meta(key: MetaKey) -> Element {
    Expressions::Meta(vec![Meta::Key(key), Meta::DestinationRegister(REGISTER)]).into()
}

fn load_ct(key: u32) -> Element {
    raw("ct", &[(NFTA_CT_KEY, key), (NFTA_CT_DREG, register())])
}

/// What the routing tables say.
fn fib(result: u32, flags: u32) -> Element {
    raw("fib", &[(NFTA_FIB_DREG, register()), (NFTA_FIB_RESULT, result), (NFTA_FIB_FLAGS, flags)])
}

fn load_payload(base: u32, offset: u32, length: u32) -> Element {
    Expressions::Payload(vec![
        Payload::DestinationRegister(REGISTER),
        Payload::Base(base),
        Payload::Offset(offset),
        Payload::Len(length),
    ])
    .into()
}

fn compare(operator: Operator, value: Vec<u8>) -> Element {
    let data = DataAttribute::Value(value);
    Expressions::Cmp(vec![Cmp::SourceRegister(REGISTER), Cmp::Op(operator), Cmp::Data(data)]).into()
}

/// The register becomes (register & mask) ^ xor.
fn mask(mask: &[u8], xor: &[u8]) -> Element {
    Expressions::Bitwise(vec![
        Bitwise::SourceRegister(REGISTER),
        Bitwise::DestinationRegister(REGISTER),
        Bitwise::Length(u32::try_from(mask.len()).unwrap_or(0)),
        Bitwise::Mask(DataAttribute::Value(mask.to_vec())),
        Bitwise::Xor(DataAttribute::Value(xor.to_vec())),
    ])
    .into()
}

fn verdict(code: u32) -> Element {
    let data = DataAttribute::Verdict(vec![VerdictAttribute::Code(Verdict::Other(code))]);
    Expressions::Immediate(vec![Immediate::DestinationRegister(Register::Verdict), Immediate::Data(data)]).into()
}

/// An expression by its kernel name, with 32-bit attributes.
fn raw(name: &str, attributes: &[(u16, u32)]) -> Element {
    let attributes =
        attributes.iter().map(|(kind, value)| DefaultNla::new(*kind, value.to_be_bytes().to_vec())).collect();
    Expressions::Other { expression_type: name.to_owned(), attributes }.into()
}

fn register() -> u32 {
    REGISTER.into()
}
