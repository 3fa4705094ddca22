//! Finds the chains of all programs that stop forwarded packets: firewalls made for machines without pods reject everything
//! that is forwarded. It reads the rules and sends no packet.
//!
//! ```text
//!   base chains at the forward hook ─▶ their rules, in order, jumps followed ─▶ accepted │ stopped by …
//! ```
//!
//! Only rules that match on links alone are evaluated. A chain is reported if it stops the packet unless another rule, which
//! matches on more, accepts it.

use std::collections::HashMap;
use std::fmt;

use netlink_packet_netfilter::nftables::{NfTablesMessage, RuleAttribute, RuleMessage};

use super::encode::HEADER_LEN;
use super::socket::message;
use super::{LinkMatch, NftSocket};
use crate::error::{Cause, Result};
use crate::wire::attributes;

// linux/netfilter/nf_tables.h
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

/// The most rules kept of a table, some 200 bytes each: far more than any table has about links.
const MAX_RULES: usize = 20_000;

/// Jumps within jumps; the kernel allows 16.
const DEEPEST: u32 = 16;

/// The links by which a packet is forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardPath {
    /// The link it comes from.
    pub from: LinkMatch,
    /// The link it goes to.
    pub to: LinkMatch,
}

/// A base chain that stops packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockingChain {
    /// `ip`, `ip6` or `inet`.
    pub family: &'static str,
    /// The name of the table.
    pub table: String,
    /// The name of the base chain.
    pub chain: String,
    /// `policy drop`, `reject`, `drop`.
    pub how: &'static str,
}

impl fmt::Display for BlockingChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.family, self.table, self.chain)
    }
}

/// The verdict of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Accept,
    Stop(&'static str),
    Jump(String),
    Goto(String),
    Return,
    None,
}

/// A rule that matches on links alone and has a verdict.
#[derive(Debug)]
struct Rule {
    conditions: Vec<LinkCondition>,
    end: Outcome,
}

/// A rule's condition on a link.
#[derive(Debug)]
struct LinkCondition {
    /// The packet's incoming link; otherwise its outgoing one.
    from: bool,
    /// Matches that link; otherwise any other.
    equal: bool,
    name: String,
    /// `name` is the whole name; otherwise a prefix.
    whole: bool,
}

/// Whether a condition matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MatchResult {
    Yes,
    No,
    /// For some of the links with the prefix.
    Some,
}

/// The rules of a table by their chains.
type Rules = HashMap<String, Vec<Rule>>;

impl NftSocket {
    /// The base chains that stop packets on any of these paths. Each rule is read once.
    ///
    /// # Errors
    /// `is_retryable()` when the tables kept changing; `is_unsupported()` when the kernel has no nf_tables; when there are more
    /// rules about links than the limit.
    pub fn blocking_chains(&mut self, paths: &[ForwardPath]) -> Result<Vec<BlockingChain>> {
        self.find_blocking_chains(paths).map_err(|cause| cause.during("read", "nft chains at the forward hook"))
    }

    fn find_blocking_chains(&mut self, paths: &[ForwardPath]) -> Result<Vec<BlockingChain>, Cause> {
        let mut found = Vec::new();
        // linux/netfilter.h: NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6.
        for (number, family) in [(1, "inet"), (2, "ip"), (10, "ip6")] {
            let mut chains = self.chains(number)?;
            chains.retain(|chain| chain.hook.is_some_and(|(hook, _)| hook == NF_INET_FORWARD));
            for of_table in chains.chunk_by(|one, next| one.table == next.table) {
                let Some(first) = of_table.first() else { continue };
                let rules = self.rules_about_links(number, &first.table)?;
                for chain in of_table {
                    let how = paths.iter().find_map(|path| match walk(&chain.name, &rules, path, DEEPEST) {
                        Outcome::Stop(how) => Some(how),
                        Outcome::Accept => None,
                        _ => chain.drops.then_some("policy drop"),
                    });
                    let (table, chain) = (chain.table.clone(), chain.name.clone());
                    found.extend(how.map(|how| BlockingChain { family, table, chain, how }));
                }
            }
        }
        Ok(found)
    }

    /// The rules of a table that match on links alone. The others are read and not kept: a table of services has tens of
    /// thousands.
    fn rules_about_links(&mut self, family: u8, table: &str) -> Result<Rules, Cause> {
        let attributes = vec![RuleAttribute::Table(table.to_owned())];
        let (request, body) = message(family, 0, NfTablesMessage::GetRule(RuleMessage { attributes }));
        let (rules, _) = self.transport.fold(
            request,
            &body,
            || (Rules::new(), 0),
            |(rules, kept), payload| {
                let Some((chain, rule)) = rule(payload)? else { return Ok(()) };
                if *kept == MAX_RULES {
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
    /// Whether every packet on the path matches.
    fn matches_all(&self, path: &ForwardPath) -> bool {
        self.conditions.iter().all(|condition| {
            condition.matches(path) == if condition.equal { MatchResult::Yes } else { MatchResult::No }
        })
    }
}

impl LinkCondition {
    /// Whether the link has that name.
    fn matches(&self, path: &ForwardPath) -> MatchResult {
        let Self { name: expected, whole, .. } = self;
        match if self.from { &path.from } else { &path.to } {
            LinkMatch::Exact(name) if *whole => is(name.as_str() == expected),
            LinkMatch::Exact(name) => is(name.as_str().starts_with(expected)),
            LinkMatch::Prefix(prefix) if prefix.starts_with(expected) && !whole => MatchResult::Yes,
            LinkMatch::Prefix(prefix) if expected.starts_with(prefix.as_str()) => MatchResult::Some,
            LinkMatch::Prefix(_) => MatchResult::No,
        }
    }
}

/// The verdict of a chain on a packet: `Accept`, `Stop` or, at its end, `None`.
fn walk(chain: &str, rules: &Rules, path: &ForwardPath, depth: u32) -> Outcome {
    for rule in rules.get(chain).into_iter().flatten().filter(|rule| rule.matches_all(path)) {
        match &rule.end {
            Outcome::Accept | Outcome::Stop(_) => return rule.end.clone(),
            Outcome::Return => return Outcome::None,
            Outcome::None => {}
            Outcome::Jump(to) | Outcome::Goto(to) => {
                let within = if depth == 0 { Outcome::None } else { walk(to, rules, path, depth - 1) };
                if within != Outcome::None || matches!(rule.end, Outcome::Goto(_)) {
                    return within;
                }
            }
        }
    }
    Outcome::None
}

/// A rule and its chain; `None` if it matches on more than links or has no verdict.
fn rule(payload: &[u8]) -> Result<Option<(String, Rule)>, Cause> {
    let (mut chain, mut rule) = (String::new(), None);
    for attribute in attributes::after(payload, HEADER_LEN) {
        match attribute? {
            (NFTA_RULE_CHAIN, value) => chain = attributes::text_of(value),
            (NFTA_RULE_EXPRESSIONS, value) => rule = rule_of(value)?,
            _ => {}
        }
    }
    Ok(rule.map(|rule| (chain, rule)))
}

fn rule_of(expressions: &[u8]) -> Result<Option<Rule>, Cause> {
    let (mut conditions, mut end) = (Vec::new(), Outcome::None);
    // The link whose name was loaded last: `true` for the incoming one.
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
                Some(it) => conditions.push(it),
                None => return Ok(None),
            },
            b"immediate" => end = verdict(data)?.unwrap_or(end),
            b"reject" => end = Outcome::Stop("reject"),
            // An extension of iptables.
            b"target" => {
                let target = found(data, NFTA_TARGET_NAME)?.map(attributes::text_of).unwrap_or_default();
                if target == "REJECT" {
                    end = Outcome::Stop("reject");
                }
            }
            b"counter" | b"log" => {}
            _ => return Ok(None),
        }
    }
    Ok((end != Outcome::None).then_some(Rule { conditions, end }))
}

/// A link's name, equal or not; `None` for any other comparison. A whole name comes with its closing NUL.
fn comparison(data: &[u8], loaded: Option<bool>) -> Result<Option<LinkCondition>, Cause> {
    let Some(from) = loaded else { return Ok(None) };
    let value = found(data, NFTA_CMP_DATA)?.map(|value| found(value, NFTA_DATA_VALUE)).transpose()?.flatten();
    let value = value.unwrap_or_default();
    let equal = match found(data, NFTA_CMP_OP)?.map(attributes::u32_be_of).transpose()? {
        Some(0) => true,
        Some(1) => false,
        _ => return Ok(None),
    };
    Ok(Some(LinkCondition { from, equal, name: attributes::text_of(value), whole: value.contains(&0) }))
}

const fn is(met: bool) -> MatchResult {
    if met { MatchResult::Yes } else { MatchResult::No }
}

fn verdict(immediate: &[u8]) -> Result<Option<Outcome>, Cause> {
    let Some(data) = found(immediate, NFTA_IMMEDIATE_DATA)? else { return Ok(None) };
    let Some(verdict) = found(data, NFTA_DATA_VERDICT)? else { return Ok(None) };
    let code = found(verdict, NFTA_VERDICT_CODE)?.map(attributes::u32_be_of).transpose()?.unwrap_or_default();
    let to = found(verdict, NFTA_VERDICT_CHAIN)?.map(attributes::text_of).unwrap_or_default();
    Ok(Some(match i32::from_ne_bytes(code.to_ne_bytes()) {
        0 => Outcome::Stop("drop"),
        1 => Outcome::Accept,
        -3 => Outcome::Jump(to),
        -4 => Outcome::Goto(to),
        -5 => Outcome::Return,
        _ => Outcome::None,
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
