//! NVIDIA's catalogue of Xids as data: [xids.json](xids.json) and, for NVLink 5, [nvlink5.json](nvlink5.json).

use std::sync::LazyLock;

use serde::Deserialize;

use super::{Advice, FaultLevel};

/// What NVIDIA says about a code.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Xid {
    codes: Vec<u32>,
    /// What it takes to end it.
    pub advice: Advice,
    /// How bad it is.
    pub level: FaultLevel,
    /// What happened, in one sentence.
    pub note: String,
}

/// An error of NVLink 5 as the driver prints it.
pub(super) struct Link<'a> {
    pub(super) xid: u32,
    pub(super) unit: &'a str,
    pub(super) information: Option<u32>,
    pub(super) status: Option<u32>,
}

/// A row of NVIDIA's table "XID 144-150 Decode".
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkRow {
    xid: u32,
    /// The unit's names; one that ends with `_` stands for all that begin like that.
    units: Vec<String>,
    /// Hexadecimal; any when empty.
    #[serde(default)]
    statuses: Vec<String>,
    /// Six bits of the information; any when empty.
    #[serde(default)]
    reasons: Vec<u32>,
    advice: Advice,
}

static XIDS: LazyLock<Vec<Xid>> = LazyLock::new(|| rows(include_str!("xids.json")));
static LINKS: LazyLock<Vec<LinkRow>> = LazyLock::new(|| rows(include_str!("nvlink5.json")));

/// Empty only if the shipped file is not valid, which a test excludes.
fn rows<T: serde::de::DeserializeOwned>(text: &str) -> Vec<T> {
    serde_json::from_str(text).unwrap_or_default()
}

/// The row of a code; none of a code that is newer than the catalogue, or that no supported GPU has.
pub fn xid(code: u32) -> Option<&'static Xid> {
    XIDS.iter().find(|row| row.codes.contains(&code))
}

/// All codes with their rows.
pub fn xids() -> impl Iterator<Item = (u32, &'static Xid)> {
    XIDS.iter().flat_map(|row| row.codes.iter().map(move |code| (*code, row)))
}

/// Whether an SXid ends all traffic of its switch, whatever word the message has: fabric manager's guide, "Always Fatal", and halts of
/// the switch's own processor.
pub fn is_fatal_sxid(code: u64) -> bool {
    matches!(code, 12020 | 22003 | 22011 | 23001..=23017 | 26006..=26008)
}

/// What it takes to end an error of NVLink 5, if NVIDIA decodes it.
pub(super) fn link(link: &Link<'_>) -> Option<Advice> {
    let is_unit = |known: &String| {
        let has = |part: &str| if known.ends_with('_') { part.starts_with(known.as_str()) } else { part == known };
        link.unit.split('/').any(has)
    };
    let reason = link.information.map(|information| information >> 20 & 0x3f);
    let has_status = |row: &LinkRow| {
        let is_status = |known: &String| u32::from_str_radix(known, 16).ok() == link.status;
        row.statuses.is_empty() || link.status.is_some() && row.statuses.iter().any(is_status)
    };
    let has_reason =
        |row: &LinkRow| row.reasons.is_empty() || reason.is_some_and(|reason| row.reasons.contains(&reason));
    let found = LINKS
        .iter()
        .find(|row| row.xid == link.xid && row.units.iter().any(is_unit) && has_status(row) && has_reason(row));
    found.map(|row| row.advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped_tables_are_valid_and_name_each_code_once() {
        assert!(serde_json::from_str::<Vec<LinkRow>>(include_str!("nvlink5.json")).unwrap().len() > 10);
        let xids = serde_json::from_str::<Vec<Xid>>(include_str!("xids.json")).unwrap();
        let mut codes: Vec<u32> = xids.iter().flat_map(|row| row.codes.clone()).collect();
        codes.sort_unstable();
        let count = codes.len();
        codes.dedup();
        assert_eq!((codes.len(), codes.contains(&79)), (count, true));
    }
}
