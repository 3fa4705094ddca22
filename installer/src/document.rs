//! A JSON text that is edited in place: what an edit does not name keeps every byte, so that others' key order, numbers,
//! spaces and unknown keys survive us, and what was put in can be taken out again without a trace.

#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;

use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Deserializer, Value};

use crate::conf_json::{Lossy, string};

/// A part of the new text, in its order.
#[derive(Clone, Debug)]
pub(crate) enum Slot {
    /// The old part, as it is.
    Keep(usize),
    /// Another text for the value of an old part.
    Change(usize, String),
    /// A new part; `key` where it belongs to an object.
    New {
        /// Its key.
        key: Option<String>,
        /// Its value.
        value: Value,
    },
}

/// An object's member or an array's element in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part<'a> {
    /// A member's key.
    pub(crate) key: Option<String>,
    /// The value's text.
    pub(crate) value: &'a str,
    /// Where the value is.
    at: Range<usize>,
    /// Where the part begins: at its key, if it has one.
    from: usize,
}

/// An object or array, by its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Document<'a> {
    text: &'a str,
    pub(crate) parts: Vec<Part<'a>>,
}

impl<'a> Document<'a> {
    /// An object's members, in their order.
    pub(crate) fn object(text: &'a str) -> Option<Self> {
        let mut deserializer = Deserializer::from_str(text);
        let members = deserializer.deserialize_map(Members).ok()?;
        deserializer.end().ok()?;
        Some(Self::new(text, members.into_iter().map(|(key, value)| (Some(key), value))))
    }

    /// An array's elements.
    pub(crate) fn array(text: &'a str) -> Option<Self> {
        let elements: Vec<&RawValue> = serde_json::from_str(text).ok()?;
        Some(Self::new(text, elements.into_iter().map(|value| (None, value))))
    }

    fn new(text: &'a str, values: impl Iterator<Item = (Option<String>, &'a RawValue)>) -> Self {
        let mut end = 0;
        let parts = values.map(|(key, raw)| {
            let value = raw.get();
            // A borrowed raw value is a piece of the text itself.
            let start = value.as_ptr().addr().saturating_sub(text.as_ptr().addr());
            let part = Part { key, value, at: start..start + value.len(), from: begins(text, end) };
            end = part.at.end;
            part
        });
        let parts = parts.collect();
        Self { text, parts }
    }

    /// A member's text.
    pub(crate) fn get(&self, key: &str) -> Option<&'a str> {
        self.position(key).and_then(|at| self.parts.get(at)).map(|part| part.value)
    }

    /// A member's value, where that is a string.
    pub(crate) fn string(&self, key: &str) -> Option<String> {
        string(self.get(key)?)
    }

    /// The same of a key that Go looks for in any case.
    pub(crate) fn folded(&self, key: &str) -> Option<&'a str> {
        let folded = |part: &&Part<'_>| part.key.as_ref().is_some_and(|found| found.eq_ignore_ascii_case(key));
        self.get(key).or_else(|| Some(self.parts.iter().rfind(folded)?.value))
    }

    /// The plugin whose entry it is. An empty name is none.
    pub(crate) fn kind(&self) -> Option<String> {
        string(self.folded("type")?).filter(|kind| !kind.is_empty())
    }

    /// Where a member is: of several with one key the last, which is the one that counts for every reader in the field.
    pub(crate) fn position(&self, key: &str) -> Option<usize> {
        self.parts.iter().rposition(|part| part.key.as_deref() == Some(key))
    }

    /// The text with other parts. Those that are kept come in their old order.
    pub(crate) fn with(&self, slots: &[Slot]) -> String {
        let cut = |range: Range<usize>| self.text.get(range).unwrap_or_default();
        let (first, last) = (self.parts.first(), self.parts.last());
        let open = self.text.find(['{', '[']).map_or(0, |at| at + 1);
        let lead = cut(open..first.map_or(open, |part| part.from));
        let tail = cut(last.map_or(open, |part| part.at.end)..self.text.len());
        let mut text = cut(0..open).to_owned();
        for (position, slot) in slots.iter().enumerate() {
            let old = match slot {
                Slot::Keep(at) | Slot::Change(at, _) => self.parts.get(*at).map(|part| (*at, part)),
                Slot::New { .. } => None,
            };
            match old {
                _ if position == 0 => text.push_str(lead),
                Some((at, part)) if at > 0 => {
                    let before = self.parts.get(at - 1).map_or(open, |before| before.at.end);
                    text.push_str(cut(before..part.from));
                }
                _ => {
                    text.push(',');
                    text.push_str(lead);
                }
            }
            match (slot, old) {
                (Slot::Keep(_), Some((_, part))) => text.push_str(cut(part.from..part.at.end)),
                (Slot::Change(_, value), Some((_, part))) => {
                    text.push_str(cut(part.from..part.at.start));
                    text.push_str(value);
                }
                (Slot::New { key, value }, _) => text.push_str(&written(key.as_deref(), value, lead)),
                (Slot::Keep(_) | Slot::Change(..), None) => {}
            }
        }
        text.push_str(tail);
        text
    }
}

/// A new part's text, in the manner of its neighbours: over lines where they are.
fn written(key: Option<&str>, value: &Value, lead: &str) -> String {
    let over_lines = lead.contains('\n');
    let indent = lead.rsplit('\n').next().unwrap_or_default();
    let value = if over_lines {
        let newline = if lead.contains("\r\n") { "\r\n" } else { "\n" };
        format!("{value:#}").replace('\n', &format!("{newline}{indent}"))
    } else {
        value.to_string()
    };
    let space = if over_lines { " " } else { "" };
    key.map_or(value.clone(), |key| format!("{}:{space}{value}", Value::from(key)))
}

/// Where a part begins: behind the bracket or comma after `end`, and space.
fn begins(text: &str, end: usize) -> usize {
    let space = |character: char| matches!(character, ' ' | '\t' | '\r' | '\n');
    let rest = text.get(end..).unwrap_or_default();
    let part = rest.trim_start_matches(space);
    let part = part.strip_prefix([',', '{', '[']).unwrap_or(part).trim_start_matches(space);
    end + (rest.len() - part.len())
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Vec<(String, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some((Lossy(key), value)) = map.next_entry()? {
            members.push((key, value));
        }
        Ok(members)
    }
}
