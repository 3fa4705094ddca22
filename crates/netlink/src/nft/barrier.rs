//! Which chains of anybody's stop packets on their way through this host: firewalls that were made for machines without
//! pods reject all that is forwarded. Told from the rules, without sending a packet.
//!
//! ```text
//!   base chains at the forward hook ─▶ their rules, in order, jumps followed ─▶ accepted │ stopped by …
//! ```
//!
//! A rule that decides by more than the links a packet comes from and goes to is taken to let other packets pass: what is
//! reported is stopped unless such a rule accepts it.

use std::collections::HashMap;
use std::fmt;

use netlink_packet_core::NetlinkSerializable;
use netlink_packet_netfilter::nftables::{ChainMessage, NfTablesMessage, RuleAttribute, RuleMessage};
use netlink_packet_netfilter::{NetfilterHeader, NetfilterMessage, NetfilterProtoFamily};

use super::{LinkMatch, Socket};
use crate::error::{Cause, Result};
use crate::wire::attributes;
use crate::wire::transport::Request;

// linux/netfilter/nf_tables.h
const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_CHAIN_POLICY: u16 = 5;
const NFTA_HOOK_HOOKNUM: u16 = 1;
const NFTA_RULE_CHAIN: u16 = 2;
const NFTA_RULE_EXPRESSIONS: u16 = 4;
const NFTA_EXPR_NAME: u16 = 1;
const NFTA_EXPR_DATA: u16 = 2;
const NFTA_META_KEY: u16 = 2;
const NFTA_CMP_OP: u16 = 2;
const NFTA_CMP_DATA: u16 = 3;
const NFTA_DATA_VALUE: u16 = 1;
const NFTA_DATA_VERDICT: u16 = 2;
const NFTA_IMMEDIATE_DATA: u16 = 2;
const NFTA_VERDICT_CODE: u16 = 1;
const NFTA_VERDICT_CHAIN: u16 = 2;
const NFTA_TARGET_NAME: u16 = 1;
const NF_INET_FORWARD: u32 = 2;
const NFT_META_IIFNAME: u32 = 6;
const NFT_META_OIFNAME: u32 = 7;
const HEADER_LEN: usize = 4;

/// Rules that are kept of a table, each some 200 bytes: far more than there are about links anywhere.
const MOST_RULES: usize = 20_000;

/// Jumps within jumps; the kernel allows 16.
const DEEPEST: u32 = 16;

/// A packet's way through this host, by its links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// The link it comes from.
    pub from: LinkMatch,
    /// The link it goes to.
    pub to: LinkMatch,
}

/// What stops packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Barrier {
    /// `ip`, `ip6` or `inet`.
    pub family: &'static str,
    /// The table.
    pub table: String,
    /// The base chain.
    pub chain: String,
    /// `policy drop`, `reject`, `drop`.
    pub how: &'static str,
}

impl fmt::Display for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.family, self.table, self.chain)
    }
}

/// A rule's end.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    Accept,
    Stop(&'static str),
    Jump(String),
    Goto(String),
    Return,
    /// The next rule.
    None,
}

/// A rule that asks for nothing but links, and decides something: what others do with a packet cannot be told by its links.
#[derive(Debug)]
struct Rule {
    asks: Vec<Asks>,
    end: End,
}

/// Which link a rule asks for.
#[derive(Debug)]
struct Asks {
    /// Where a packet comes from; else where it goes to.
    from: bool,
    /// Whether it is to be that link; else any but that.
    equal: bool,
    name: String,
    /// Whether that is the whole name; else all that begin so.
    whole: bool,
}

/// Whether a link is the one that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meets {
    Yes,
    No,
    /// Some of those with its prefix are.
    Perhaps,
}

/// The rules of a table by their chains.
type Rules = HashMap<String, Vec<Rule>>;

#[derive(Debug)]
struct Chain {
    name: String,
    /// At the forward hook; whether its policy is to drop.
    base: Option<bool>,
}

impl Socket {
    /// The base chains that stop packets on any of some ways. Every rule is read once, whatever their number.
    ///
    /// # Errors
    /// `is_retryable()` when the tables kept changing; `is_unsupported()` when the kernel has no nf_tables; when there are more
    /// rules about links than are looked at.
    pub fn barriers(&mut self, ways: &[Way]) -> Result<Vec<Barrier>> {
        self.all_barriers(ways).map_err(|cause| cause.during("read", "nft chains at the forward hook"))
    }

    fn all_barriers(&mut self, ways: &[Way]) -> Result<Vec<Barrier>, Cause> {
        let mut found = Vec::new();
        for (family, word) in [
            (NetfilterProtoFamily::Inet, "inet"),
            (NetfilterProtoFamily::IPv4, "ip"),
            (NetfilterProtoFamily::IPv6, "ip6"),
        ] {
            let all = NfTablesMessage::GetChain(ChainMessage { attributes: vec![] });
            let (request, body) = message(family, all);
            let chains = self.transport.list(request, &body, |payload| chain(payload).map(Some))?;
            let mut tables: Vec<&String> =
                chains.iter().filter(|(_, chain)| chain.base.is_some()).map(|(table, _)| table).collect();
            tables.dedup();
            for table in tables {
                let rules = self.rules_about_links(family, table)?;
                for (_, chain) in chains.iter().filter(|(of, _)| of == table) {
                    let Some(drops) = chain.base else { continue };
                    let how = ways.iter().find_map(|way| match walk(&chain.name, &rules, way, DEEPEST) {
                        End::Stop(how) => Some(how),
                        End::Accept => None,
                        _ => drops.then_some("policy drop"),
                    });
                    let Some(how) = how else { continue };
                    found.push(Barrier { family: word, table: table.clone(), chain: chain.name.clone(), how });
                }
            }
        }
        Ok(found)
    }

    /// A table's rules that can be told by links alone. The others, and a table of services has tens of thousands, are read
    /// and not kept.
    fn rules_about_links(&mut self, family: NetfilterProtoFamily, table: &str) -> Result<Rules, Cause> {
        let attributes = vec![RuleAttribute::Table(table.to_owned())];
        let (request, body) = message(family, NfTablesMessage::GetRule(RuleMessage { attributes }));
        let (rules, _) = self.transport.fold(
            request,
            &body,
            || (Rules::new(), 0),
            |(rules, kept), payload| {
                let Some((chain, rule)) = rule(payload)? else { return Ok(()) };
                if *kept == MOST_RULES {
                    return Err(Cause::Invalid("there are more than 20,000 rules about links"));
                }
                *kept += 1;
                rules.entry(chain).or_default().push(rule);
                Ok(())
            },
        )?;
        Ok(rules)
    }
}

impl Rule {
    /// Whether every packet on the way meets it. One that meets it perhaps only is taken to pass it.
    fn takes(&self, way: &Way) -> bool {
        self.asks.iter().all(|asks| asks.meets(way) == if asks.equal { Meets::Yes } else { Meets::No })
    }
}

impl Asks {
    /// Whether it is that link.
    fn meets(&self, way: &Way) -> Meets {
        let Self { name: wanted, whole, .. } = self;
        match if self.from { &way.from } else { &way.to } {
            LinkMatch::Exact(name) if *whole => is(name.as_str() == wanted),
            LinkMatch::Exact(name) => is(name.as_str().starts_with(wanted)),
            LinkMatch::Prefix(prefix) if prefix.starts_with(wanted) && !whole => Meets::Yes,
            LinkMatch::Prefix(prefix) if wanted.starts_with(prefix.as_str()) => Meets::Perhaps,
            LinkMatch::Prefix(_) => Meets::No,
        }
    }
}

/// What becomes of a packet in a chain: `Accept`, `Stop` or, at its end, `None`.
fn walk(chain: &str, rules: &Rules, way: &Way, depth: u32) -> End {
    for rule in rules.get(chain).into_iter().flatten().filter(|rule| rule.takes(way)) {
        match &rule.end {
            End::Accept | End::Stop(_) => return rule.end.clone(),
            End::Return => return End::None,
            End::None => {}
            End::Jump(to) | End::Goto(to) => {
                let within = if depth == 0 { End::None } else { walk(to, rules, way, depth - 1) };
                if within != End::None || matches!(rule.end, End::Goto(_)) {
                    return within;
                }
            }
        }
    }
    End::None
}

fn chain(payload: &[u8]) -> Result<(String, Chain), Cause> {
    let (mut table, mut name, mut forward, mut drops) = (String::new(), String::new(), false, false);
    for attribute in attributes::after(payload, HEADER_LEN) {
        match attribute? {
            (NFTA_CHAIN_TABLE, value) => table = attributes::text_of(value),
            (NFTA_CHAIN_NAME, value) => name = attributes::text_of(value),
            (NFTA_CHAIN_POLICY, value) => drops = attributes::u32_be_of(value)? == 0,
            (NFTA_CHAIN_HOOK, value) => {
                let number = found(value, NFTA_HOOK_HOOKNUM)?.map(attributes::u32_be_of).transpose()?;
                forward = number == Some(NF_INET_FORWARD);
            }
            _ => {}
        }
    }
    Ok((table, Chain { name, base: forward.then_some(drops) }))
}

/// Of which chain, and what it does; `None` where links are not all that it asks for, or where it decides nothing.
fn rule(payload: &[u8]) -> Result<Option<(String, Rule)>, Cause> {
    let (mut chain, mut told) = (String::new(), None);
    for attribute in attributes::after(payload, HEADER_LEN) {
        match attribute? {
            (NFTA_RULE_CHAIN, value) => chain = attributes::text_of(value),
            (NFTA_RULE_EXPRESSIONS, value) => told = tell(value)?,
            _ => {}
        }
    }
    Ok(told.map(|rule| (chain, rule)))
}

fn tell(expressions: &[u8]) -> Result<Option<Rule>, Cause> {
    let (mut asks, mut end) = (Vec::new(), End::None);
    // The link whose name was loaded last: where the packet comes from, or where it goes to.
    let mut loaded = None;
    for expression in attributes::within(expressions) {
        let (_, expression) = expression?;
        let name = found(expression, NFTA_EXPR_NAME)?.unwrap_or_default();
        let name = name.strip_suffix(&[0]).unwrap_or(name);
        let data = found(expression, NFTA_EXPR_DATA)?.unwrap_or_default();
        match name {
            b"meta" => {
                loaded = match found(data, NFTA_META_KEY)?.map(attributes::u32_be_of).transpose()? {
                    Some(NFT_META_IIFNAME) => Some(true),
                    Some(NFT_META_OIFNAME) => Some(false),
                    _ => return Ok(None),
                };
            }
            b"cmp" => match comparison(data, loaded)? {
                Some(it) => asks.push(it),
                None => return Ok(None),
            },
            b"immediate" => end = verdict(data)?.unwrap_or(end),
            b"reject" => end = End::Stop("reject"),
            // An extension of iptables.
            b"target" => {
                let target = found(data, NFTA_TARGET_NAME)?.map(attributes::text_of).unwrap_or_default();
                if target == "REJECT" {
                    end = End::Stop("reject");
                }
            }
            b"counter" | b"log" => {}
            _ => return Ok(None),
        }
    }
    Ok((end != End::None).then_some(Rule { asks, end }))
}

/// A link's name, equal or not; `None` for any other comparison. A whole name comes with its closing NUL.
fn comparison(data: &[u8], loaded: Option<bool>) -> Result<Option<Asks>, Cause> {
    let Some(from) = loaded else { return Ok(None) };
    let value = found(data, NFTA_CMP_DATA)?.map(|value| found(value, NFTA_DATA_VALUE)).transpose()?.flatten();
    let value = value.unwrap_or_default();
    let equal = match found(data, NFTA_CMP_OP)?.map(attributes::u32_be_of).transpose()? {
        Some(0) => true,
        Some(1) => false,
        _ => return Ok(None),
    };
    Ok(Some(Asks { from, equal, name: attributes::text_of(value), whole: value.contains(&0) }))
}

const fn is(met: bool) -> Meets {
    if met { Meets::Yes } else { Meets::No }
}

fn verdict(immediate: &[u8]) -> Result<Option<End>, Cause> {
    let Some(data) = found(immediate, NFTA_IMMEDIATE_DATA)? else { return Ok(None) };
    let Some(verdict) = found(data, NFTA_DATA_VERDICT)? else { return Ok(None) };
    let code = found(verdict, NFTA_VERDICT_CODE)?.map(attributes::u32_be_of).transpose()?.unwrap_or_default();
    let to = found(verdict, NFTA_VERDICT_CHAIN)?.map(attributes::text_of).unwrap_or_default();
    Ok(Some(match i32::from_ne_bytes(code.to_ne_bytes()) {
        0 => End::Stop("drop"),
        1 => End::Accept,
        -3 => End::Jump(to),
        -4 => End::Goto(to),
        -5 => End::Return,
        _ => End::None,
    }))
}

/// The value of a nested attribute.
fn found(nested: &[u8], kind: u16) -> Result<Option<&[u8]>, Cause> {
    for attribute in attributes::within(nested) {
        match attribute? {
            (other, value) if other == kind => return Ok(Some(value)),
            _ => {}
        }
    }
    Ok(None)
}

fn message(family: NetfilterProtoFamily, inner: NfTablesMessage) -> (Request, NetfilterMessage) {
    let body = NetfilterMessage::new(NetfilterHeader::new(family, 0, 0), inner);
    (Request { message_type: body.message_type(), flags: 0 }, body)
}
