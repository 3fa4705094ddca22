//! Sets and maps: kube-proxy's and firewalls' rules are little without them. Keys and values as bytes, as in rules.

use std::fmt::Write as _;

use netlink_packet_core::DefaultNla;
use netlink_packet_netfilter::nftables::NfTablesMessage;

use super::{CappedText, HEADER_LEN, Socket, data_of, question, texts};
use crate::error::Cause;
use crate::wire::attributes;

// linux/netfilter/nf_tables.h
const NFT_MSG_GETSET: u8 = 10;
const NFT_MSG_GETSETELEM: u8 = 13;
const NFTA_SET_TABLE: u16 = 1;
const NFTA_SET_NAME: u16 = 2;
const NFTA_SET_FLAGS: u16 = 3;
const NFT_SET_INTERVAL: u32 = 4;
const NFT_SET_MAP: u32 = 8;
const NFTA_SET_ELEM_LIST_TABLE: u16 = 1;
const NFTA_SET_ELEM_LIST_SET: u16 = 2;
const NFTA_SET_ELEM_LIST_ELEMENTS: u16 = 3;
const NFTA_SET_ELEM_KEY: u16 = 1;
const NFTA_SET_ELEM_DATA: u16 = 2;
const NFTA_SET_ELEM_FLAGS: u16 = 3;
const NFTA_SET_ELEM_KEY_END: u16 = 10;
const NFT_SET_ELEM_INTERVAL_END: u32 = 1;

/// The most elements of a set that are told: a cluster's Services fill some, a blocklist more than anybody reads.
const TOLD: usize = 4096;

/// The most that are held, to find the first of them by order: some 50 bytes each.
const KEPT: usize = 4 * TOLD;

struct Set {
    name: String,
    flags: u32,
}

impl Socket {
    /// A table's sets, the anonymous ones of rules included, as far as there is room for them.
    pub(super) fn sets(&mut self, family: u8, table: &str, told: &mut CappedText) -> Result<(), Cause> {
        let text_of = |kind, text: &str| DefaultNla::new(kind, [text.as_bytes(), &[0]].concat());
        let attributes = vec![text_of(NFTA_SET_TABLE, table)];
        let (request, body) = question(family, NfTablesMessage::Other { message_type: NFT_MSG_GETSET, attributes });
        // Each takes a line and more.
        let most = told.longest / 8 + 1;
        let sets = self.transport.fold(request, &body, Vec::new, |sets, payload| {
            if sets.len() < most {
                sets.push(set(payload)?);
            }
            Ok(())
        })?;
        for set in sets {
            if told.cut {
                break;
            }
            let attributes = vec![text_of(NFTA_SET_ELEM_LIST_TABLE, table), text_of(NFTA_SET_ELEM_LIST_SET, &set.name)];
            let message = NfTablesMessage::Other { message_type: NFT_MSG_GETSETELEM, attributes };
            match self.elements(family, message) {
                Ok((mut elements, count)) => {
                    // The kernel's order is by its hash, or intervals from their ends.
                    elements.sort();
                    text(&set, &elements, count).split_inclusive('\n').for_each(|line| told.push(line));
                }
                // It went meanwhile.
                Err(cause) if cause.errno() == Some(crate::Errno::ENOENT) => {}
                Err(cause) => return Err(cause),
            }
        }
        Ok(())
    }

    /// Some of a set's elements, and how many there are.
    fn elements(&mut self, family: u8, message: NfTablesMessage) -> Result<(Vec<String>, usize), Cause> {
        let (request, body) = question(family, message);
        self.transport.fold(
            request,
            &body,
            || (Vec::new(), 0),
            |(kept, count), payload| {
                let elements = elements(payload)?;
                *count += elements.len();
                let room = KEPT.saturating_sub(kept.len());
                kept.extend(elements.into_iter().take(room));
                Ok(())
            },
        )
    }
}

fn set(payload: &[u8]) -> Result<Set, Cause> {
    let [name] = texts(payload, [NFTA_SET_NAME])?;
    let mut flags = 0;
    for attribute in attributes::after(payload, HEADER_LEN) {
        if let (NFTA_SET_FLAGS, value) = attribute? {
            flags = attributes::u32_be_of(value)?;
        }
    }
    Ok(Set { name, flags })
}

/// Elements come by many per message.
fn elements(payload: &[u8]) -> Result<Vec<String>, Cause> {
    let mut found = Vec::new();
    for attribute in attributes::after(payload, HEADER_LEN) {
        if let (NFTA_SET_ELEM_LIST_ELEMENTS, list) = attribute? {
            for element_of in attributes::within(list) {
                found.push(element(element_of?.1)?);
            }
        }
    }
    Ok(found)
}

fn element(value: &[u8]) -> Result<String, Cause> {
    // Without a key: what the set has for everything else.
    let (mut key, mut end, mut data, mut closes) = ("*".to_owned(), String::new(), String::new(), false);
    for attribute in attributes::within(value) {
        match attribute? {
            (NFTA_SET_ELEM_KEY, value) => key = data_of(value)?,
            (NFTA_SET_ELEM_KEY_END, value) => end = format!("-{}", data_of(value)?),
            (NFTA_SET_ELEM_DATA, value) => data = format!(" : {}", data_of(value)?),
            (NFTA_SET_ELEM_FLAGS, value) => closes = attributes::u32_be_of(value)? & NFT_SET_ELEM_INTERVAL_END != 0,
            _ => {}
        }
    }
    let closes = if closes { " ends" } else { "" };
    Ok(format!("{key}{end}{data}{closes}"))
}

fn text(set: &Set, elements: &[String], count: usize) -> String {
    let noun = if set.flags & NFT_SET_MAP == 0 { "set" } else { "map" };
    let interval = if set.flags & NFT_SET_INTERVAL == 0 { "" } else { " flags interval;" };
    let mut text = format!("  {noun} {} {{{interval}\n", set.name);
    for element in elements.iter().take(TOLD) {
        // Writing to a String does not fail.
        let _ = writeln!(text, "    {element}");
    }
    if count > TOLD {
        let _ = writeln!(text, "    … and {} more", count - TOLD);
    }
    text.push_str("  }\n");
    text
}
