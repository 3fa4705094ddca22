//! allocations.json: who holds what, in as few words as the choice of an address needs. It is read and written for every
//! pod, so what there is of each pod besides stands in a record of its own, and the two long lists are texts, read and
//! written here: an element of a JSON array costs ten times as much.
//!
//! ```json
//! {"held":"3f0c…-1a2b3c4d=10.0.1.8,2603:c020::8","freed":"10.0.1.9@71321 10.0.1.10@80002!","version":1,"bootId":"…"}
//! ```
//!
//! `held` are the names of records, with their addresses. `freed` are addresses with the time since the boot, in
//! milliseconds, and `!` where the kernel has forgotten their connections. The lists keep their form within a format
//! version: what a newer build has to say of an address goes into a field of its own, beside them, and fields are kept.

mod elements;
mod list;

use std::io::Write;
use std::net::IpAddr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use self::list::List;
use crate::records::name_of;
use crate::{Allocations, BootId, BootTime, Freed};

/// Where the kernel has forgotten the connections of an address.
const FORGOTTEN: u8 = b'!';

/// What an element takes as a rule, in bytes.
const USUAL_LENGTH: usize = 40;

/// The file but for its lists, which are written before it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Rest<'a> {
    version: u32,
    boot_id: &'a BootId,
    #[serde(skip_serializing_if = "Option::is_none")]
    anew: Option<BootTime>,
    #[serde(flatten)]
    extra: &'a Map<String, Value>,
}

/// The file as it is read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Index<'a> {
    version: u32,
    boot_id: BootId,
    #[serde(borrow)]
    held: List<'a>,
    #[serde(borrow)]
    freed: List<'a>,
    anew: Option<BootTime>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

impl Allocations {
    /// The index that says this, without the records.
    ///
    /// # Errors
    /// None that is known of.
    pub fn to_index(&self) -> serde_json::Result<Vec<u8>> {
        let elements = self.others.len() + self.allocations.len() + self.freed.len();
        let mut index = Vec::with_capacity((elements + 8) * USUAL_LENGTH);
        // Nothing in the lists needs an escape.
        index.extend_from_slice(b"{\"held\":\"");
        for other in &self.others {
            separate(&mut index);
            hold(&mut index, &other.name, other.addresses.iter().copied());
        }
        for held in &self.allocations {
            separate(&mut index);
            hold(&mut index, &name_of(&held.key), held.addresses.iter().map(|assigned| assigned.address));
        }
        index.extend_from_slice(b"\",\"freed\":\"");
        for freed in &self.freed {
            separate(&mut index);
            free(&mut index, freed);
        }
        index.extend_from_slice(b"\"");
        let end = index.len();
        let Self { version, boot_id, anew, extra, .. } = self;
        serde_json::to_writer(&mut index, &Rest { version: *version, boot_id, anew: *anew, extra })?;
        // One document of two: the second begins where the first goes on.
        if let Some(brace) = index.get_mut(end) {
            *brace = b',';
        }
        Ok(index)
    }
}

/// What the index says: all of it as of [`Allocations::others`].
impl<'de> Deserialize<'de> for Allocations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Index { version, boot_id, held, freed, anew, extra } = Index::deserialize(deserializer)?;
        let wrong = |what, at| D::Error::custom(format_args!("{what:?} is not {at}"));
        let others = elements::held(&held.0).map_err(|text| wrong(text, "a record's name and its addresses"))?;
        let freed = elements::freed(&freed.0).map_err(|text| wrong(text, "an address and when it was freed"))?;
        Ok(Self { version, boot_id, allocations: Vec::new(), others, freed, anew, extra })
    }
}

/// A space between elements; none after the quote that a list begins with.
fn separate(index: &mut Vec<u8>) {
    if index.last() != Some(&b'"') {
        index.push(b' ');
    }
}

fn hold(index: &mut Vec<u8>, name: &str, addresses: impl Iterator<Item = IpAddr>) {
    index.extend_from_slice(name.as_bytes());
    let mut separator = b'=';
    for address in addresses {
        index.push(separator);
        write(index, address);
        separator = b',';
    }
    if separator == b'=' {
        index.push(separator);
    }
}

fn free(index: &mut Vec<u8>, freed: &Freed) {
    write(index, freed.address);
    index.push(b'@');
    index.extend_from_slice(itoa::Buffer::new().format(freed.at.0).as_bytes());
    if freed.forgotten {
        index.push(FORGOTTEN);
    }
}

fn write(index: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => {
            let [first, rest @ ..] = address.octets();
            write_octet(index, first);
            for octet in rest {
                index.push(b'.');
                write_octet(index, octet);
            }
        }
        // Into a vector: it cannot fail.
        IpAddr::V6(address) => drop(write!(index, "{address}")),
    }
}

fn write_octet(index: &mut Vec<u8>, octet: u8) {
    if octet > 99 {
        index.push(b'0' + octet / 100);
    }
    if octet > 9 {
        index.push(b'0' + octet / 10 % 10);
    }
    index.push(b'0' + octet % 10);
}
