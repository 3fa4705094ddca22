//! allocations.json: who holds what, in as few words as the choice of an address needs. It is read and written for every
//! pod, so what there is of each pod besides stands in a record of its own.
//!
//! ```json
//! {"version":1,"bootId":"…","held":[["3f0c…-1a2b3c4d",["10.0.1.8"]]],"freed":[["10.0.1.9",71321],["10.0.1.10",80002,true]]}
//! ```
//!
//! The elements of the lists are short and keep their form within a format version: what a newer build has to say of
//! an address goes into a field of its own, beside the lists, and fields are kept.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use serde::de::{Error as _, IgnoredAny, SeqAccess, Unexpected, Visitor};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::allocations::Held;
use crate::records::{is_name, name_of};
use crate::{Allocations, BootId, BootTime, Freed};

/// The file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Index<'a> {
    version: u32,
    boot_id: Cow<'a, BootId>,
    held: Vec<Cow<'a, Held>>,
    freed: Cow<'a, [Freed]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    anew: Option<BootTime>,
    #[serde(flatten)]
    extra: Cow<'a, Map<String, Value>>,
}

/// What allocations are written as: the index, without their records.
impl Serialize for Allocations {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let others = self.others.iter().map(Cow::Borrowed);
        let known = self.allocations.iter().map(|allocation| {
            let (name, addresses) = (name_of(&allocation.key), allocation.held());
            Cow::Owned(Held { name, addresses })
        });
        Index {
            version: self.version,
            boot_id: Cow::Borrowed(&self.boot_id),
            held: others.chain(known).collect(),
            freed: Cow::Borrowed(&self.freed),
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
        Ok(Self {
            version,
            boot_id: boot_id.into_owned(),
            allocations: Vec::new(),
            others: held.into_iter().map(Cow::into_owned).collect(),
            freed: freed.into_owned(),
            anew,
            extra: extra.into_owned(),
        })
    }
}

impl Serialize for Held {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(None)?;
        seq.serialize_element(&self.name)?;
        seq.serialize_element(&self.addresses)?;
        seq.end()
    }
}

impl Serialize for Freed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(None)?;
        seq.serialize_element(&self.address)?;
        seq.serialize_element(&self.at)?;
        if self.forgotten {
            seq.serialize_element(&true)?;
        }
        seq.end()
    }
}

impl<'de> Deserialize<'de> for Held {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(HeldElements)
    }
}

impl<'de> Deserialize<'de> for Freed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(FreedElements)
    }
}

struct HeldElements;

impl<'de> Visitor<'de> for HeldElements {
    type Value = Held;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a record's name and its addresses")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Held, A::Error> {
        let name: String = elements.next_element()?.ok_or_else(|| A::Error::invalid_length(0, &self))?;
        let addresses: Vec<IpAddr> = elements.next_element()?.ok_or_else(|| A::Error::invalid_length(1, &self))?;
        rest(elements)?;
        if !is_name(&name) {
            return Err(A::Error::invalid_value(Unexpected::Str(&name), &"the name of a record"));
        }
        Ok(Held { name, addresses })
    }
}

struct FreedElements;

impl<'de> Visitor<'de> for FreedElements {
    type Value = Freed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an address, a time and perhaps whether it is forgotten")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Freed, A::Error> {
        let address = elements.next_element()?.ok_or_else(|| A::Error::invalid_length(0, &self))?;
        let at = elements.next_element()?.ok_or_else(|| A::Error::invalid_length(1, &self))?;
        let forgotten = elements.next_element()?.unwrap_or(false);
        rest(elements)?;
        Ok(Freed { address, at, forgotten })
    }
}

fn rest<'de, A: SeqAccess<'de>>(mut elements: A) -> Result<(), A::Error> {
    while elements.next_element::<IgnoredAny>()?.is_some() {}
    Ok(())
}
