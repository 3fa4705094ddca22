//! The whole ruleset of a namespace as text for reports: the tables, chains and rules of all programs, similar to `nft list
//! ruleset`, without the `nft` program. A rule is shown expression by expression; unknown expressions are shown as numbers.

use std::fmt::Write as _;

use netlink_packet_core::NetlinkSerializable;
use netlink_packet_netfilter::nftables::{ChainMessage, NfTablesMessage, RuleAttribute, RuleMessage, TableMessage};
use netlink_packet_netfilter::{NetfilterHeader, NetfilterMessage, NetfilterProtoFamily};

use super::Socket;
use crate::error::{Cause, Result};
use crate::wire::attributes;
use crate::wire::transport::Request;

mod sets;

// linux/netfilter/nf_tables.h. A number means the same of tables, chains and rules where the names here say so.
const NFTA_TABLE_NAME: u16 = 1;
const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_CHAIN_POLICY: u16 = 5;
const NFTA_CHAIN_TYPE: u16 = 7;
const NFTA_HOOK_HOOKNUM: u16 = 1;
const NFTA_HOOK_PRIORITY: u16 = 2;
const NFTA_RULE_EXPRESSIONS: u16 = 4;
const NFTA_RULE_USERDATA: u16 = 7;
const NFTA_EXPR_NAME: u16 = 1;
const NFTA_EXPR_DATA: u16 = 2;
const NFTA_DATA_VERDICT: u16 = 2;
const NFTA_VERDICT_CODE: u16 = 1;
const NFTA_VERDICT_CHAIN: u16 = 2;
const HEADER_LEN: usize = 4;

/// By their numbers.
const META_KEYS: [&str; 17] = [
    "len",
    "protocol",
    "priority",
    "mark",
    "iif",
    "oif",
    "iifname",
    "oifname",
    "iiftype",
    "oiftype",
    "skuid",
    "skgid",
    "nftrace",
    "rtclassid",
    "secmark",
    "nfproto",
    "l4proto",
];
const HOOKS: [&str; 6] = ["prerouting", "input", "forward", "output", "postrouting", "ingress"];
const ARP_HOOKS: [&str; 3] = ["input", "output", "forward"];
/// linux/netfilter.h
const NFPROTO_ARP: u8 = 3;
const COMPARISONS: [&str; 6] = ["==", "!=", "<", "<=", ">", ">="];
const CT_KEYS: [&str; 9] =
    ["state", "direction", "status", "mark", "secmark", "expiration", "helper", "l3protocol", "src"];

/// An object and its family.
type InFamily<T> = (u8, T);

/// A chain: its table, its name, its first line.
type ChainLine = (String, String, String);

/// The ruleset as text, up to the limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ruleset {
    /// For people.
    pub text: String,
    /// The tables that were cut.
    pub cut: Vec<String>,
}

/// The most text, in bytes, so that a node with tens of thousands of rules costs no more than a small one.
#[derive(Clone, Copy, Debug)]
pub struct TextLimits {
    /// Of a table.
    pub table: usize,
    /// Of all tables; those after the limit are shown by name.
    pub all: usize,
}

/// A table's text and its limit.
struct CappedText {
    text: String,
    longest: usize,
    cut: bool,
}

impl Socket {
    /// All of nf_tables; the tables with the name `first` come first.
    ///
    /// # Errors
    /// `is_retryable()` when the tables kept changing; `is_unsupported()` when the kernel has no nf_tables.
    pub fn ruleset(&mut self, first: &str, longest: TextLimits) -> Result<Ruleset> {
        self.ruleset_text(first, longest).map_err(|cause| cause.during("read", "the nft ruleset"))
    }

    fn ruleset_text(&mut self, first: &str, longest: TextLimits) -> Result<Ruleset, Cause> {
        let mut tables: Vec<InFamily<String>> =
            self.all(NfTablesMessage::GetTable(TableMessage { attributes: vec![] }), table)?;
        tables.sort_by_key(|(_, table)| table != first);
        let mut ruleset = Ruleset::default();
        for (family, table) in tables {
            let left = longest.all.saturating_sub(ruleset.text.len());
            let CappedText { text, cut, .. } = self.table_text(family, &table, longest.table.min(left))?;
            ruleset.text.push_str(&text);
            if cut {
                ruleset.cut.push(format!("{} {table}", family_word(family)));
            }
        }
        Ok(ruleset)
    }

    fn table_text(&mut self, family: u8, table: &str, longest: usize) -> Result<CappedText, Cause> {
        let mut capped =
            CappedText { text: format!("table {} {table} {{\n", family_word(family)), longest, cut: false };
        self.sets(family, table, &mut capped)?;
        for (name, line) in self.chains(family, table, longest)? {
            if capped.cut {
                break;
            }
            capped.push(&format!("  chain {name} {{{line}\n"));
            self.rules(family, table, &name, &mut capped)?;
            capped.push("  }\n");
        }
        if capped.cut {
            capped.text.push_str("  … and more: it is cut here\n");
        }
        capped.text.push_str("}\n");
        Ok(capped)
    }

    /// The names and first lines of a table's chains, up to `longest` bytes and one chain. The kernel lists those of all tables.
    fn chains(&mut self, family: u8, table: &str, longest: usize) -> Result<Vec<(String, String)>, Cause> {
        let (request, body) = question(family, NfTablesMessage::GetChain(ChainMessage { attributes: vec![] }));
        let (chains, _) = self.transport.fold(
            request,
            &body,
            || (Vec::new(), 0),
            |(chains, length), payload| {
                let (owner, name, line) = chain(payload)?;
                if owner == table && *length <= longest {
                    *length += name.len() + line.len();
                    chains.push((name, line));
                }
                Ok(())
            },
        )?;
        Ok(chains)
    }

    /// A chain's rules, up to the limit.
    fn rules(&mut self, family: u8, table: &str, chain: &str, capped: &mut CappedText) -> Result<(), Cause> {
        let attributes = vec![RuleAttribute::Table(table.to_owned()), RuleAttribute::Chain(chain.to_owned())];
        let (request, body) = question(family, NfTablesMessage::GetRule(RuleMessage { attributes }));
        let room = capped.longest.saturating_sub(capped.text.len());
        let lines = self.transport.fold(request, &body, String::new, |lines, payload| {
            // One line beyond the limit marks the text as cut.
            if lines.len() <= room {
                lines.push_str("    ");
                lines.push_str(&rule(payload)?);
                lines.push('\n');
            }
            Ok(())
        })?;
        lines.split_inclusive('\n').for_each(|line| capped.push(line));
        Ok(())
    }

    fn all<T>(
        &mut self,
        question: NfTablesMessage,
        decode: impl Fn(&[u8]) -> Result<T, Cause>,
    ) -> Result<Vec<InFamily<T>>, Cause> {
        let (request, body) = self::question(0, question);
        self.transport.list(request, &body, |payload| {
            let family = payload.first().copied().unwrap_or_default();
            Ok(Some((family, decode(payload)?)))
        })
    }
}

impl CappedText {
    /// Adds a line, if there is room for it.
    fn push(&mut self, line: &str) {
        self.cut |= self.text.len() + line.len() > self.longest;
        if !self.cut {
            self.text.push_str(line);
        }
    }
}

/// A question about a family; 0 for all.
fn question(family: u8, question: NfTablesMessage) -> (Request, NetfilterMessage) {
    let body = NetfilterMessage::new(NetfilterHeader::new(NetfilterProtoFamily::Other(family), 0, 0), question);
    (Request { message_type: NetlinkSerializable::message_type(&body), flags: 0 }, body)
}

fn table(payload: &[u8]) -> Result<String, Cause> {
    Ok(texts(payload, [NFTA_TABLE_NAME])?.concat())
}

fn chain(payload: &[u8]) -> Result<ChainLine, Cause> {
    let [table, name, kind] = texts(payload, [NFTA_CHAIN_TABLE, NFTA_CHAIN_NAME, NFTA_CHAIN_TYPE])?;
    let (mut hook, mut policy) = (String::new(), "");
    let hooks: &[&str] = if payload.first() == Some(&NFPROTO_ARP) { &ARP_HOOKS } else { &HOOKS };
    for attribute in attributes::after(payload, HEADER_LEN) {
        match attribute? {
            (NFTA_CHAIN_HOOK, value) => hook = hooked(value, hooks, &kind)?,
            (NFTA_CHAIN_POLICY, value) if attributes::u32_be_of(value)? == 0 => policy = " policy drop;",
            (NFTA_CHAIN_POLICY, _) => policy = " policy accept;",
            _ => {}
        }
    }
    Ok((table, name, if hook.is_empty() { String::new() } else { hook + policy }))
}

fn hooked(value: &[u8], hooks: &[&str], kind: &str) -> Result<String, Cause> {
    let (mut hook, mut priority) = (String::new(), 0);
    for attribute in attributes::within(value) {
        match attribute? {
            (NFTA_HOOK_HOOKNUM, value) => hook = word(hooks, value),
            (NFTA_HOOK_PRIORITY, value) => priority = attributes::u32_be_of(value)?.cast_signed(),
            _ => {}
        }
    }
    Ok(format!(" type {kind} hook {hook} priority {priority};"))
}

fn rule(payload: &[u8]) -> Result<String, Cause> {
    let (mut expressions, mut comment) = (Vec::new(), None);
    for attribute in attributes::after(payload, HEADER_LEN) {
        match attribute? {
            (NFTA_RULE_EXPRESSIONS, value) => {
                for expression_of in attributes::within(value) {
                    let of_link = expressions.last().is_some_and(|before: &String| before.ends_with("ifname"));
                    expressions.push(expression(expression_of?.1, of_link)?);
                }
            }
            (NFTA_RULE_USERDATA, value) => comment = super::observed::comment(value),
            _ => {}
        }
    }
    let comment = comment.map(|comment| format!("  # {comment}")).unwrap_or_default();
    Ok(expressions.join("; ") + &comment)
}

/// `of_link`: the comparison is with a link's name.
fn expression(value: &[u8], of_link: bool) -> Result<String, Cause> {
    let (mut name, mut data): (String, &[u8]) = (String::new(), &[]);
    for attribute in attributes::within(value) {
        match attribute? {
            (NFTA_EXPR_NAME, value) => name = attributes::text_of(value),
            (NFTA_EXPR_DATA, value) => data = value,
            _ => {}
        }
    }
    let mut parts = Vec::new();
    for attribute in attributes::within(data) {
        // Data without attributes ends the list; the name is still shown.
        let Ok((kind, value)) = attribute else { break };
        parts.push(match (name.as_str(), kind & 0x3fff) {
            ("meta", 2) => word(&META_KEYS, value),
            ("ct", 2) => word(&CT_KEYS, value),
            ("cmp", 2) => word(&COMPARISONS, value),
            ("meta", 3) | ("ct", 4) => "set".into(),
            ("cmp", 3) if of_link => link_name(value)?,
            // Registers and lengths: clear from the order of the expressions.
            ("meta" | "ct" | "cmp" | "payload" | "immediate" | "fib", 1) | ("bitwise", 1 | 2 | 3 | 6) => continue,
            ("cmp" | "immediate", 3) | ("immediate", 2) => data_of(value)?,
            ("bitwise", 4) => format!("mask {}", data_of(value)?),
            ("bitwise", 5) => format!("xor {}", data_of(value)?),
            ("counter", 1) => format!("bytes {}", number(value)),
            ("counter", 2) => format!("packets {}", number(value)),
            ("lookup" | "objref" | "dynset", 1) | ("match" | "target", 1) => attributes::text_of(value),
            // Private data of iptables extensions.
            ("match" | "target", _) => continue,
            ("log", 2) => format!("prefix {:?}", attributes::text_of(value)),
            ("payload", 2) => word(&["link", "network", "transport"], value),
            ("payload", 3) => format!("at {}", number(value)),
            ("payload", 4) => format!("length {}", number(value)),
            (_, kind) => format!("{kind}={}", number(value)),
        });
    }
    Ok(if parts.is_empty() { name } else { format!("{name} {}", parts.join(" ")) })
}

/// A value or a verdict.
fn data_of(value: &[u8]) -> Result<String, Cause> {
    match attributes::within(value).next().transpose()? {
        Some((NFTA_DATA_VERDICT, value)) => verdict(value),
        Some((_, value)) => Ok(bytes(value)),
        None => Ok(String::new()),
    }
}

fn verdict(value: &[u8]) -> Result<String, Cause> {
    let (mut code, mut chain) = (0, String::new());
    for attribute in attributes::within(value) {
        match attribute? {
            (NFTA_VERDICT_CODE, value) => code = attributes::u32_be_of(value)?.cast_signed(),
            (NFTA_VERDICT_CHAIN, value) => chain = attributes::text_of(value),
            _ => {}
        }
    }
    Ok(match code {
        0 => "drop".into(),
        1 => "accept".into(),
        -1 => "continue".into(),
        -2 => "break".into(),
        -3 => format!("jump {chain}"),
        -4 => format!("goto {chain}"),
        -5 => "return".into(),
        other => format!("verdict {other}"),
    })
}

fn bytes(value: &[u8]) -> String {
    let mut text = String::from("0x");
    for byte in value {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// `0x656e7335` is not readable. One that is compared in part stands for all that begin so.
fn link_name(value: &[u8]) -> Result<String, Cause> {
    let name = attributes::within(value).next().unwrap_or(Err(Cause::Malformed("a comparison with nothing")))?.1;
    let all = if name.last() == Some(&0) { "" } else { "*" };
    Ok(format!("\"{}{all}\"", attributes::text_of(name)))
}

/// netfilter's numbers are in network byte order, of any length.
fn number(value: &[u8]) -> u64 {
    value.iter().take(8).fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

fn word(words: &[&str], value: &[u8]) -> String {
    let number = number(value);
    let word = usize::try_from(number).ok().and_then(|at| words.get(at));
    word.map_or_else(|| number.to_string(), |word| (*word).to_owned())
}

fn texts<const N: usize>(payload: &[u8], kinds: [u16; N]) -> Result<[String; N], Cause> {
    let mut found = [const { String::new() }; N];
    for attribute in attributes::after(payload, HEADER_LEN) {
        let (kind, value) = attribute?;
        for (wanted, text) in kinds.iter().zip(&mut found) {
            if *wanted == kind {
                *text = attributes::text_of(value);
            }
        }
    }
    Ok(found)
}

fn family_word(family: u8) -> String {
    match family {
        1 => "inet".into(),
        2 => "ip".into(),
        3 => "arp".into(),
        5 => "netdev".into(),
        7 => "bridge".into(),
        10 => "ip6".into(),
        other => format!("family-{other}"),
    }
}
