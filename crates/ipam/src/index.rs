//! allocations.json: who holds what, in as few words as the choice of an address needs. It is read and written for every
//! pod, so what there is of each pod besides stands in a record of its own, and the two long lists are texts: an element
//! of a JSON array costs five times as much.
//!
//! ```json
//! {"version":1,"bootId":"…","held":"3f0c…-1a2b3c4d=10.0.1.8,2603:c020::8","freed":"10.0.1.9@71321 10.0.1.10@80002!"}
//! ```
//!
//! `held` are the names of records, with their addresses. `freed` are addresses with the time since the boot, in
//! milliseconds, and `!` where the kernel has forgotten their connections. The lists keep their form within a format
//! version: what a newer build has to say of an address goes into a field of its own, beside them, and fields are kept.

use std::borrow::Cow;
use std::fmt::Write;
use std::net::IpAddr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::allocations::Held;
use crate::records::{is_name, name_of};
use crate::{Allocations, BootId, BootTime, Freed};

/// Where the kernel has forgotten the connections of an address.
const FORGOTTEN: char = '!';

/// What an element takes as a rule, in bytes; the longest IPv6 address and any name are longer.
const USUAL_LENGTH: usize = 40;

/// The file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Index<'a> {
    version: u32,
    boot_id: Cow<'a, BootId>,
    #[serde(borrow)]
    held: Cow<'a, str>,
    #[serde(borrow)]
    freed: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    anew: Option<BootTime>,
    #[serde(flatten)]
    extra: Cow<'a, Map<String, Value>>,
}

/// What allocations are written as: the index, without their records.
impl Serialize for Allocations {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut held = List::of(self.others.len() + self.allocations.len());
        for other in &self.others {
            held.hold(&other.name, other.addresses.iter().copied());
        }
        for allocation in &self.allocations {
            held.hold(&name_of(&allocation.key), allocation.addresses.iter().map(|assigned| assigned.address));
        }
        let mut freed = List::of(self.freed.len());
        self.freed.iter().for_each(|one| freed.free(one));
        Index {
            version: self.version,
            boot_id: Cow::Borrowed(&self.boot_id),
            held: held.0.into(),
            freed: freed.0.into(),
            anew: self.anew,
            extra: Cow::Borrowed(&self.extra),
        }
        .serialize(serializer)
    }
}

/// What the index says: all of it as of [`Allocations::others`].
impl<'de> Deserialize<'de> for Allocations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Index { version, boot_id, held, freed, anew, extra } = Index::deserialize(deserializer)?;
        let wrong = |text: &str, what| D::Error::custom(format_args!("{text:?} is not {what}"));
        let elements = |list| str::split(list, ' ').filter(|element| !element.is_empty());
        let others = elements(&held)
            .map(|text| holding(text).ok_or_else(|| wrong(text, "a record's name and its addresses")))
            .collect::<Result<_, _>>()?;
        let freed = elements(&freed)
            .map(|text| freedom(text).ok_or_else(|| wrong(text, "an address and when it was freed")))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            version,
            boot_id: boot_id.into_owned(),
            allocations: Vec::new(),
            others,
            freed,
            anew,
            extra: extra.into_owned(),
        })
    }
}

/// A list as it is written.
struct List(String);

impl List {
    fn of(elements: usize) -> Self {
        Self(String::with_capacity(elements * USUAL_LENGTH))
    }

    fn hold(&mut self, name: &str, addresses: impl Iterator<Item = IpAddr>) {
        self.begin();
        self.0.push_str(name);
        self.0.push('=');
        for (at, address) in addresses.enumerate() {
            if at > 0 {
                self.0.push(',');
            }
            self.address(address);
        }
    }

    fn free(&mut self, freed: &Freed) {
        self.begin();
        self.address(freed.address);
        self.0.push('@');
        self.0.push_str(itoa::Buffer::new().format(freed.at.0));
        if freed.forgotten {
            self.0.push(FORGOTTEN);
        }
    }

    fn begin(&mut self) {
        if !self.0.is_empty() {
            self.0.push(' ');
        }
    }

    fn address(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(address) => {
                let [first, rest @ ..] = address.octets();
                self.0.push_str(itoa::Buffer::new().format(first));
                for octet in rest {
                    self.0.push('.');
                    self.0.push_str(itoa::Buffer::new().format(octet));
                }
            }
            // Into a String: it cannot fail.
            IpAddr::V6(address) => drop(write!(self.0, "{address}")),
        }
    }
}

fn holding(text: &str) -> Option<Held> {
    let (name, addresses) = text.split_once('=')?;
    let addresses = match addresses {
        "" => Vec::new(),
        some => some.split(',').map(|address| address.parse().ok()).collect::<Option<_>>()?,
    };
    is_name(name).then(|| Held { name: name.to_owned(), addresses })
}

fn freedom(text: &str) -> Option<Freed> {
    let (address, at) = text.split_once('@')?;
    let (at, forgotten) = match at.strip_suffix(FORGOTTEN) {
        Some(at) => (at, true),
        None => (at, false),
    };
    Some(Freed { address: address.parse().ok()?, at: BootTime(at.parse().ok()?), forgotten })
}
