//! allocations.json: who holds which address, and nothing else that the choice of an address does not need. It is read and
//! written for every pod, so the rest of each pod's data is in a record of its own. The two long lists are texts: an element
//! of a JSON array costs ten times as much.
//!
//! ```json
//! {"held":"3f0c…-1a2b3c4d=10.0.1.8,2603:c020::8","freed":"10.0.1.9@71321 10.0.1.10@80002!","version":1,"bootId":"…"}
//! ```
//!
//! `held` lists the names of records with their addresses. `freed` lists addresses with the time since boot in milliseconds,
//! and `!` once the kernel has forgotten their connections. The lists keep their form within a format version: a newer build
//! puts anything else about an address into a field of its own, and unknown fields are kept.

mod elements;

use std::borrow::Cow;
use std::fmt::Write as _;
use std::net::IpAddr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::records::name_of;
use crate::{Allocations, BootId, BootTime, FreedAddress};

/// The mark of an address whose connections the kernel has forgotten.
const FORGOTTEN: &str = "!";

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Index<'a> {
    #[serde(borrow)]
    held: Cow<'a, str>,
    #[serde(borrow)]
    freed: Cow<'a, str>,
    version: u32,
    boot_id: Cow<'a, BootId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rebuilt_at: Option<BootTime>,
    #[serde(flatten)]
    extra: Cow<'a, Map<String, Value>>,
}

impl Allocations {
    /// The index of these allocations, without the records.
    ///
    /// # Errors
    /// None that is known of.
    pub fn to_index(&self) -> serde_json::Result<Vec<u8>> {
        let (mut held, mut freed) = (String::new(), String::new());
        for other in &self.others {
            add_holding(&mut held, &other.name, other.addresses.iter().copied());
        }
        for own in &self.allocations {
            add_holding(&mut held, &name_of(&own.key), own.addresses.iter().map(|assigned| assigned.address));
        }
        for FreedAddress { address, at: BootTime(at), forgotten } in &self.freed {
            let mark = if *forgotten { FORGOTTEN } else { "" };
            let _ = write!(freed, "{}{address}@{at}{mark}", separator(&freed));
        }
        serde_json::to_vec(&Index {
            held: held.into(),
            freed: freed.into(),
            version: self.version,
            boot_id: Cow::Borrowed(&self.boot_id),
            rebuilt_at: self.rebuilt_at,
            extra: Cow::Borrowed(&self.extra),
        })
    }
}

/// What the index says: all of it as of [`Allocations::others`].
impl<'de> Deserialize<'de> for Allocations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Index { held, freed, version, boot_id, rebuilt_at, extra } = Index::deserialize(deserializer)?;
        let wrong = |text, expected| D::Error::custom(format_args!("{text:?} is not {expected}"));
        let others = elements::held(&held).map_err(|text| wrong(text, "a record's name and its addresses"))?;
        let freed = elements::freed(&freed).map_err(|text| wrong(text, "an address and when it was freed"))?;
        let (boot_id, extra) = (boot_id.into_owned(), extra.into_owned());
        Ok(Self { version, boot_id, allocations: Vec::new(), others, freed, rebuilt_at, extra })
    }
}

// Writing to a String does not fail.
fn add_holding(list: &mut String, name: &str, addresses: impl Iterator<Item = IpAddr>) {
    let _ = write!(list, "{}{name}=", separator(list));
    for (at, address) in addresses.enumerate() {
        let _ = write!(list, "{}{address}", if at == 0 { "" } else { "," });
    }
}

fn separator(list: &str) -> &'static str {
    if list.is_empty() { "" } else { " " }
}
