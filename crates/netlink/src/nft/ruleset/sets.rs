//! Sets and maps: kube-proxy's and firewalls' rules are little without them. Keys and values as bytes, as in rules.

use std::fmt::Write as _;

use netlink_packet_core::{DefaultNla, NetlinkSerializable};
use netlink_packet_netfilter::nftables::NfTablesMessage;
use netlink_packet_netfilter::{NetfilterHeader, NetfilterMessage, NetfilterProtoFamily};

use super::{HEADER_LEN, Of, Socket, data_of, texts};
use crate::attributes;
use crate::error::Cause;
use crate::transport::Request;

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

/// A set: of which table, its name, its text.
pub(super) type Told = (String, String, String);

struct Set {
    table: String,
    name: String,
    flags: u32,
}

impl Socket {
    /// All sets, the anonymous ones of rules included.
    pub(super) fn sets(&mut self) -> Result<Vec<Of<Told>>, Cause> {
        let question = NfTablesMessage::Other { message_type: NFT_MSG_GETSET, attributes: vec![] };
        let mut found = Vec::new();
        for (family, set) in self.all(question, set)? {
            let text = match self.elements(family, &set) {
                Ok(mut elements) => {
                    // The kernel's order is by its hash, or intervals from their ends.
                    elements.sort();
                    text(&set, &elements)
                }
                // It went meanwhile.
                Err(cause) if cause.errno() == Some(crate::Errno::ENOENT) => continue,
                Err(cause) => return Err(cause),
            };
            found.push((family, (set.table, set.name, text)));
        }
        Ok(found)
    }

    fn elements(&mut self, family: u8, set: &Set) -> Result<Vec<String>, Cause> {
        let text = |kind, text: &str| DefaultNla::new(kind, [text.as_bytes(), &[0]].concat());
        let attributes = vec![text(NFTA_SET_ELEM_LIST_TABLE, &set.table), text(NFTA_SET_ELEM_LIST_SET, &set.name)];
        let question = NfTablesMessage::Other { message_type: NFT_MSG_GETSETELEM, attributes };
        let header = NetfilterHeader::new(NetfilterProtoFamily::Other(family), 0, 0);
        let body = NetfilterMessage::new(header, question);
        let request = Request { message_type: NetlinkSerializable::message_type(&body), flags: 0 };
        Ok(self.transport.list(request, &body, |payload| Ok(Some(elements(payload)?)))?.concat())
    }
}

fn set(payload: &[u8]) -> Result<Set, Cause> {
    let [table, name] = texts(payload, [NFTA_SET_TABLE, NFTA_SET_NAME])?;
    let mut flags = 0;
    for attribute in attributes::after(payload, HEADER_LEN) {
        if let (NFTA_SET_FLAGS, value) = attribute? {
            flags = attributes::u32_be_of(value)?;
        }
    }
    Ok(Set { table, name, flags })
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

fn text(set: &Set, elements: &[String]) -> String {
    let noun = if set.flags & NFT_SET_MAP == 0 { "set" } else { "map" };
    let interval = if set.flags & NFT_SET_INTERVAL == 0 { "" } else { " flags interval;" };
    let mut text = format!("  {noun} {} {{{interval}\n", set.name);
    for element in elements.iter().take(TOLD) {
        // Writing to a String does not fail.
        let _ = writeln!(text, "    {element}");
    }
    if elements.len() > TOLD {
        let _ = writeln!(text, "    … and {} more", elements.len() - TOLD);
    }
    text.push_str("  }\n");
    text
}
