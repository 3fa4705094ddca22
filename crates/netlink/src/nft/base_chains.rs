//! The base chains of all programs as text for reports: who filters packets, where and in which order. `nft list ruleset` shows
//! their rules.

use netlink_packet_core::NetlinkSerializable;
use netlink_packet_netfilter::nftables::{ChainMessage, NfTablesMessage};
use netlink_packet_netfilter::{NetfilterHeader, NetfilterMessage, NetfilterProtoFamily};

use super::Socket;
use crate::error::{Cause, Result};
use crate::wire::attributes;
use crate::wire::transport::Request;

// linux/netfilter/nf_tables.h
const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_CHAIN_POLICY: u16 = 5;
const NFTA_CHAIN_TYPE: u16 = 7;
const NFTA_HOOK_HOOKNUM: u16 = 1;
const NFTA_HOOK_PRIORITY: u16 = 2;
const HEADER_LEN: usize = 4;

/// The hooks by their numbers; those of family arp (NFPROTO_ARP in linux/netfilter.h) have others.
const HOOKS: [&str; 6] = ["prerouting", "input", "forward", "output", "postrouting", "ingress"];
const ARP_HOOKS: [&str; 3] = ["input", "output", "forward"];
const NFPROTO_ARP: u8 = 3;

impl Socket {
    /// A line for each base chain of each table: `ip filter FORWARD: filter at forward, priority 0, policy drop`.
    ///
    /// # Errors
    /// `is_retryable()` when the tables kept changing; `is_unsupported()` when the kernel has no nf_tables.
    pub fn base_chains(&mut self) -> Result<Vec<String>> {
        let all = NfTablesMessage::GetChain(ChainMessage { attributes: vec![] });
        let body = NetfilterMessage::new(NetfilterHeader::new(NetfilterProtoFamily::Other(0), 0, 0), all);
        let request = Request { message_type: body.message_type(), flags: 0 };
        self.transport.list(request, &body, line).map_err(|cause| cause.during("read", "nft chains"))
    }
}

/// `None` for a chain that only other chains call.
fn line(payload: &[u8]) -> Result<Option<String>, Cause> {
    let family = payload.first().copied().unwrap_or_default();
    let (mut table, mut name, mut kind) = (String::new(), String::new(), String::new());
    let (mut hook, mut policy) = (None, "");
    for attribute in attributes::after(payload, HEADER_LEN) {
        match attribute? {
            (NFTA_CHAIN_TABLE, value) => table = attributes::text_of(value),
            (NFTA_CHAIN_NAME, value) => name = attributes::text_of(value),
            (NFTA_CHAIN_TYPE, value) => kind = attributes::text_of(value),
            (NFTA_CHAIN_HOOK, value) => hook = Some(hook_of(value, family)?),
            (NFTA_CHAIN_POLICY, value) if attributes::u32_be_of(value)? == 0 => policy = ", policy drop",
            _ => {}
        }
    }
    Ok(hook.map(|hook| format!("{} {table} {name}: {kind} at {hook}{policy}", family_word(family))))
}

fn hook_of(value: &[u8], family: u8) -> Result<String, Cause> {
    let hooks: &[&str] = if family == NFPROTO_ARP { &ARP_HOOKS } else { &HOOKS };
    let (mut hook, mut priority) = ("an unknown hook", 0);
    for attribute in attributes::within(value) {
        match attribute? {
            (NFTA_HOOK_HOOKNUM, value) => {
                let number = usize::try_from(attributes::u32_be_of(value)?).ok();
                hook = number.and_then(|number| hooks.get(number).copied()).unwrap_or(hook);
            }
            (NFTA_HOOK_PRIORITY, value) => priority = attributes::u32_be_of(value)?.cast_signed(),
            _ => {}
        }
    }
    Ok(format!("{hook}, priority {priority}"))
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
