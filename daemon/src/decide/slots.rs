//! Which routing table each VNIC has. The rules of running pods name the table, so a VNIC keeps its slot as long as it exists. No
//! other VNIC gets the slot while any route, rule or allocation refers to its table.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use ipam::{read_state, write_atomically};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;
use vcn::{Ocid, TABLE_BASE, TableId};

const VERSION: u32 = 1;
const FILE: &str = "tables.json";

/// The slots in use.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Slots {
    slots: BTreeMap<Ocid, u32>,
    /// Fields of a newer version.
    extra: Map<String, Value>,
}

/// What refers to our tables outside of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableReferences {
    /// Tables that any route, rule or allocation of any program refers to.
    pub tables: BTreeSet<TableId>,
    /// Tables that are known to be a VNIC's, from which a lost file is restored.
    pub owners: BTreeMap<Ocid, TableId>,
}

/// `tables.json`, in the directory that outlives a boot.
#[derive(Clone, Debug)]
pub(crate) struct SlotFile {
    path: PathBuf,
}

/// Why the slots cannot be read or written.
#[derive(Debug, Error)]
pub(crate) enum SlotError {
    /// The file cannot be read or has a newer format: it must not be replaced.
    #[error("reading {FILE}")]
    Read(#[source] io::Error),
    /// The file is damaged.
    #[error(
        "reading {FILE}, which is damaged; it is set aside, and the tables are restored from routes and allocations"
    )]
    Damaged(#[source] io::Error),
    /// The file cannot be written; the old one is intact.
    #[error("writing {FILE}")]
    Write(#[source] io::Error),
}

#[derive(Serialize, Deserialize)]
struct Document {
    version: u32,
    slots: BTreeMap<Ocid, u32>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

impl Slots {
    /// The routing table of the VNIC's slot; `None` if the VNIC has no slot.
    pub(crate) fn table(&self, vnic: &Ocid) -> Option<TableId> {
        self.slots.get(vnic).map(|slot| table_of(*slot))
    }

    /// Whether exactly these VNICs have a slot, so that none is to be assigned or freed.
    pub(crate) fn are_for<'a>(&self, present: impl IntoIterator<Item = &'a Ocid>) -> bool {
        let present: BTreeSet<&Ocid> = present.into_iter().collect();
        present.len() == self.slots.len() && present.iter().all(|id| self.slots.contains_key(*id))
    }

    /// Assigns a slot to every VNIC that is present: the one it has, else the one its routes show, else the lowest that is free
    /// and not referred to. Frees those of VNICs that are gone once nothing refers to them.
    pub(crate) fn assign<'a>(&mut self, present: impl IntoIterator<Item = &'a Ocid>, referred: &TableReferences) {
        let present: Vec<&Ocid> = present.into_iter().collect();
        self.slots.retain(|id, slot| present.contains(&id) || referred.tables.contains(&table_of(*slot)));
        for id in &present {
            if let Some(slot) = referred.owners.get(*id).and_then(|table| table.0.checked_sub(TABLE_BASE)) {
                let taken = self.slots.values().any(|other| *other == slot);
                if !taken && !self.slots.contains_key(*id) {
                    self.slots.insert((*id).clone(), slot);
                }
            }
        }
        for id in present {
            if !self.slots.contains_key(id) {
                let taken: BTreeSet<u32> = self.slots.values().copied().collect();
                let free = |slot: &u32| !taken.contains(slot) && !referred.tables.contains(&table_of(*slot));
                // There are 2^32 - 1000 of them.
                self.slots.insert(id.clone(), (0..).find(free).unwrap_or_default());
            }
        }
    }
}

impl SlotFile {
    /// The file in `data_dir`.
    pub(crate) fn new(data_dir: &Path) -> Self {
        Self { path: data_dir.join(FILE) }
    }

    /// The slots in the file; none if there is no file.
    pub(crate) fn read(&self) -> Result<Slots, SlotError> {
        let bytes = match read_state(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Slots::default()),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(SlotError::Damaged(error)),
            read => read.map_err(SlotError::Read)?,
        };
        let document: Document = serde_json::from_slice(&bytes).map_err(|error| SlotError::Damaged(error.into()))?;
        if document.version > VERSION {
            let message = format!("format version {}, this build reads up to {VERSION}", document.version);
            return Err(SlotError::Read(io::Error::other(message)));
        }
        Ok(Slots { slots: document.slots, extra: document.extra })
    }

    /// Renames a damaged file to `tables.json.damaged`, for an investigation.
    pub(crate) fn set_aside(&self) -> Result<(), SlotError> {
        ipam::set_aside(&self.path).map(drop).map_err(SlotError::Write)
    }

    pub(crate) fn write(&self, slots: &Slots) -> Result<(), SlotError> {
        let document = Document { version: VERSION, slots: slots.slots.clone(), extra: slots.extra.clone() };
        let text = serde_json::to_string_pretty(&document).map_err(|error| SlotError::Write(error.into()))?;
        write_atomically(&self.path, (text + "\n").as_bytes()).map_err(SlotError::Write)
    }
}

const fn table_of(slot: u32) -> TableId {
    TableId(TABLE_BASE.saturating_add(slot))
}
