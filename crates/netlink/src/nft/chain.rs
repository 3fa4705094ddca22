//! The chains of all programs, as the kernel lists them, and the base chains as text for reports: who filters packets, where and
//! in which order. `nft list ruleset` shows their rules.

use netlink_packet_netfilter::nftables::{ChainMessage, NfTablesMessage};

use super::NftSocket;
use super::encode::HEADER_LEN;
use super::socket::message;
use crate::error::{Cause, Result};
use crate::wire::attributes;

// linux/netfilter/nf_tables.h
const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_CHAIN_POLICY: u16 = 5;
const NFTA_CHAIN_TYPE: u16 = 7;
const NFTA_HOOK_HOOKNUM: u16 = 1;
const NFTA_HOOK_PRIORITY: u16 = 2;

/// The hooks by their numbers; those of family arp have others.
const HOOKS: [&str; 6] = ["prerouting", "input", "forward", "output", "postrouting", "ingress"];
const ARP_HOOKS: [&str; 3] = ["input", "output", "forward"];

/// The families by their numbers (linux/netfilter.h).
const FAMILIES: [(u8, &str); 6] = [(1, "inet"), (2, "ip"), (ARP, "arp"), (5, "netdev"), (7, "bridge"), (10, "ip6")];
const ARP: u8 = 3;

/// A chain of any program.
#[derive(Debug)]
pub(crate) struct ListedChain {
    family: u8,
    pub(super) table: String,
    pub(super) name: String,
    kind: String,
    /// Number and priority of its hook; `None` of a chain that only other chains call.
    pub(super) hook: Option<(u32, i32)>,
    /// Whether its policy is to drop.
    pub(super) drops: bool,
}

impl NftSocket {
    /// A line for each base chain of each table: `ip filter FORWARD: filter at forward, priority 0, policy drop`.
    ///
    /// # Errors
    /// `is_retryable()` when the tables kept changing; `is_unsupported()` when the kernel has no nf_tables.
    pub fn base_chains(&mut self) -> Result<Vec<String>> {
        let chains = self.chains(0).map_err(|cause| cause.during("read", "nft chains"))?;
        Ok(chains.iter().filter_map(ListedChain::line).collect())
    }

    /// The chains of a family, or of all (0).
    pub(super) fn chains(&mut self, family: u8) -> Result<Vec<ListedChain>, Cause> {
        let all = NfTablesMessage::GetChain(ChainMessage { attributes: vec![] });
        let (request, body) = message(family, 0, all);
        self.transport.list(request, &body, |payload| ListedChain::decode(payload).map(Some))
    }
}

impl ListedChain {
    pub(crate) fn decode(payload: &[u8]) -> Result<Self, Cause> {
        let family = payload.first().copied().unwrap_or_default();
        let (mut table, mut name, mut kind) = (String::new(), String::new(), String::new());
        let (mut hook, mut drops) = (None, false);
        for attribute in attributes::after(payload, HEADER_LEN) {
            match attribute? {
                (NFTA_CHAIN_TABLE, value) => table = attributes::text_of(value),
                (NFTA_CHAIN_NAME, value) => name = attributes::text_of(value),
                (NFTA_CHAIN_TYPE, value) => kind = attributes::text_of(value),
                (NFTA_CHAIN_HOOK, value) => hook = Some(hook_of(value)?),
                (NFTA_CHAIN_POLICY, value) => drops = attributes::u32_be_of(value)? == 0,
                _ => {}
            }
        }
        Ok(Self { family, table, name, kind, hook, drops })
    }

    /// `None` for a chain that only other chains call.
    fn line(&self) -> Option<String> {
        let Self { family, table, name, kind, hook, drops } = self;
        let (number, priority) = (*hook)?;
        let hooks: &[&str] = if *family == ARP { &ARP_HOOKS } else { &HOOKS };
        let hook = usize::try_from(number).ok().and_then(|number| hooks.get(number)).unwrap_or(&"an unknown hook");
        let known = FAMILIES.iter().find(|(number, _)| number == family);
        let family = known.map_or_else(|| format!("family-{family}"), |(_, word)| (*word).to_owned());
        let policy = if *drops { ", policy drop" } else { "" };
        Some(format!("{family} {table} {name}: {kind} at {hook}, priority {priority}{policy}"))
    }
}

fn hook_of(value: &[u8]) -> Result<(u32, i32), Cause> {
    let (mut number, mut priority) = (u32::MAX, 0);
    for attribute in attributes::within(value) {
        match attribute? {
            (NFTA_HOOK_HOOKNUM, value) => number = attributes::u32_be_of(value)?,
            (NFTA_HOOK_PRIORITY, value) => priority = attributes::u32_be_of(value)?.cast_signed(),
            _ => {}
        }
    }
    Ok((number, priority))
}
