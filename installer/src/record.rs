//! What we did to the node's files, kept where it outlives a reboot: the text of configurations as we last wrote them, how
//! often somebody undid that, and what was there before us. Without it everything still works, but for telling our
//! additions from others', and for giving back what we replaced.

mod before;
mod earlier;
mod fights;
mod file;
#[cfg(test)]
mod tests;
pub(crate) mod unnamed;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub(crate) use before::{BEFORE, Before};
pub(crate) use earlier::Earlier;
pub(crate) use fights::{Fights, WINDOW};
pub(crate) use file::RecordFile;

/// All of it. Unknown fields, a later version's, are kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Record {
    /// The format's.
    pub(crate) version: u32,
    /// Configurations by their name in the directory: ours, and others' that we are chained into.
    pub(crate) configurations: BTreeMap<String, Configuration>,
    /// Binaries by their name in the directory.
    pub(crate) binaries: BTreeMap<String, Binary>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

impl Record {
    /// All that was there before us, as far as it was not given back.
    pub(crate) fn before(&self) -> impl Iterator<Item = &Before> {
        let configurations = self.configurations.values().filter_map(|known| known.before.as_ref());
        configurations.chain(self.binaries.values().filter_map(|known| known.before.as_ref()))
    }
}

/// A configuration that we write or add to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Configuration {
    /// All of it, as we last wrote it.
    pub(crate) written: Option<String>,
    /// What we last asked for, in it: for ours the whole, for others' our entry.
    pub(crate) wanted: Option<Value>,
    /// What we had written before that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) earlier: Option<Earlier>,
    /// What was there before us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<Before>,
    /// When somebody had undone it and we repaired it.
    #[serde(skip_serializing_if = "Fights::is_empty")]
    pub(crate) fights: Fights,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

/// A binary that we put in place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Binary {
    /// The SHA-256 of what we put there, or were about to when we were stopped.
    pub(crate) digest: Option<String>,
    /// What we had put there before that: still there, where the next could not be put in place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) earlier: Option<String>,
    /// What was there before us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<Before>,
    /// When somebody had replaced it, or changed its mode, and we put that right.
    #[serde(skip_serializing_if = "Fights::is_empty")]
    pub(crate) fights: Fights,
    #[serde(flatten)]
    extra: Map<String, Value>,
}
