//! What of a table is in the kernel: enough to see whether it was changed, and to report it.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::error::Cause;
use crate::wire::attributes;

use super::encode::COMMENT;
use super::{ChainKind, Hook, TableFamily};

// linux/netfilter/nf_tables.h
const NFTA_TABLE_HANDLE: u16 = 4;
const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_CHAIN_TYPE: u16 = 7;
const NFTA_HOOK_HOOKNUM: u16 = 1;
const NFTA_HOOK_PRIORITY: u16 = 2;
const NFTA_RULE_TABLE: u16 = 1;
const NFTA_RULE_CHAIN: u16 = 2;
const NFTA_RULE_EXPRESSIONS: u16 = 4;
const NFTA_RULE_USERDATA: u16 = 7;
const NFTA_EXPR_NAME: u16 = 1;

/// After the family, version and resource of every netfilter message.
const HEADER_LEN: usize = 4;

/// A table in the kernel. Equal to what was read before: it was not made again (that gives another handle), and no program edited a
/// chain or a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableState {
    /// Its name.
    pub name: String,
    /// The kernel's number for it, never used twice in a namespace.
    pub handle: u64,
    /// Its chains.
    pub chains: Vec<ChainState>,
}

/// A chain in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainState {
    /// Its name.
    pub name: String,
    /// Where and when it is called; `None` of a chain that only others jump to.
    pub hook: Option<(Hook, i32)>,
    /// What its rules may do.
    pub kind: Option<ChainKind>,
    /// Its rules, in order.
    pub rules: Vec<RuleState>,
}

/// A rule in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleState {
    /// Its comment; empty when it has none.
    pub comment: String,
    /// Stands for all it matches and does, counters' values aside. The kernel describes a rule in more words than it was
    /// made with, and in other words from version to version, so this compares with an earlier reading of the same boot
    /// only, not with a wanted rule.
    pub fingerprint: u64,
}

impl TableState {
    /// The comments of every chain's rules, in order: what a wanted [`super::Table`] can be compared with.
    pub fn comments(&self) -> impl Iterator<Item = (&str, &str)> {
        self.chains.iter().flat_map(|chain| chain.rules.iter().map(|rule| (chain.name.as_str(), rule.comment.as_str())))
    }
}

/// A table's handle.
pub(crate) fn table(payload: &[u8]) -> Result<u64, Cause> {
    for attribute in attributes::after(payload, HEADER_LEN) {
        if let (NFTA_TABLE_HANDLE, value) = attribute? {
            return handle(value);
        }
    }
    Err(Cause::Malformed("a table without handle"))
}

/// A chain, if it is of this table.
pub(crate) fn chain(payload: &[u8], family: TableFamily, table: &str) -> Result<Option<ChainState>, Cause> {
    let mut state = ChainState { name: String::new(), hook: None, kind: None, rules: Vec::new() };
    for attribute in attributes::after(payload, HEADER_LEN) {
        match attribute? {
            (NFTA_CHAIN_TABLE, value) if attributes::text_of(value) != table => return Ok(None),
            (NFTA_CHAIN_NAME, value) => state.name = attributes::text_of(value),
            (NFTA_CHAIN_HOOK, value) => state.hook = hook(family, value)?,
            (NFTA_CHAIN_TYPE, value) => state.kind = ChainKind::from_word(&attributes::text_of(value)),
            _ => {}
        }
    }
    Ok(Some(state))
}

fn hook(family: TableFamily, value: &[u8]) -> Result<Option<(Hook, i32)>, Cause> {
    let (mut hook, mut priority) = (None, 0);
    for attribute in attributes::within(value) {
        match attribute? {
            (NFTA_HOOK_HOOKNUM, value) => hook = Hook::of_number(family, attributes::u32_be_of(value)?),
            (NFTA_HOOK_PRIORITY, value) => {
                priority = i32::from_ne_bytes(attributes::u32_be_of(value)?.to_ne_bytes());
            }
            _ => {}
        }
    }
    Ok(hook.map(|hook| (hook, priority)))
}

/// A rule and the name of its chain, if it is of this table.
pub(crate) fn rule(payload: &[u8], table: &str) -> Result<Option<(String, RuleState)>, Cause> {
    let (mut chain, mut state) = (String::new(), RuleState { comment: String::new(), fingerprint: 0 });
    for attribute in attributes::after(payload, HEADER_LEN) {
        match attribute? {
            (NFTA_RULE_TABLE, value) if attributes::text_of(value) != table => return Ok(None),
            (NFTA_RULE_CHAIN, value) => chain = attributes::text_of(value),
            (NFTA_RULE_EXPRESSIONS, value) => state.fingerprint = fingerprint(value)?,
            (NFTA_RULE_USERDATA, value) => state.comment = comment(value).unwrap_or_default(),
            _ => {}
        }
    }
    Ok(Some((chain, state)))
}

fn fingerprint(expressions: &[u8]) -> Result<u64, Cause> {
    let mut hasher = DefaultHasher::new();
    for expression in attributes::within(expressions) {
        let (_, expression) = expression?;
        let counter = match attributes::within(expression).next() {
            Some(first) => matches!(first?, (NFTA_EXPR_NAME, name) if attributes::text_of(name) == "counter"),
            None => false,
        };
        if counter {
            "counter".hash(&mut hasher);
        } else {
            expression.hash(&mut hasher);
        }
    }
    Ok(hasher.finish())
}

fn handle(value: &[u8]) -> Result<u64, Cause> {
    value.first_chunk().map(|bytes| u64::from_be_bytes(*bytes)).ok_or(Cause::Malformed("short handle"))
}

/// User data is another program's: whatever it holds, it is never malformed.
pub(super) fn comment(mut data: &[u8]) -> Option<String> {
    loop {
        let (&[kind, length], rest) = data.split_first_chunk()?;
        let value = rest.get(..usize::from(length))?;
        if kind == COMMENT {
            return Some(attributes::text_of(value));
        }
        data = rest.get(usize::from(length)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_is_found_behind_other_notes() {
        assert_eq!(comment(&[9, 1, 7, 0, 3, b'a', b'b', 0]).as_deref(), Some("ab"));
        for broken in [&[][..], &[0], &[0, 9, b'a'], &[9, 0], &[9, 1, 7]] {
            assert_eq!(comment(broken), None, "{broken:?}");
        }
    }
}
