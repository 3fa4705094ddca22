//! Which routing table each VNIC has. A table number is in the rules of running pods, so a VNIC keeps its slot as long as
//! it is there, and a slot is not given to another while any route, rule or allocation refers to its table.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use ipam::{read_state, write_atomically};
use serde::de::Error as _;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;
use vcn::{Ocid, TABLE_BASE, TableId};

const VERSION: u32 = 1;
const FILE: &str = "tables.json";

/// The slots in use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slots {
    slots: BTreeMap<Ocid, u32>,
    /// Fields of a newer version.
    extra: Map<String, Value>,
}

/// What there is of our tables outside of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Referred {
    /// Tables that any route, rule or allocation refers to, whoever made it.
    pub tables: BTreeSet<TableId>,
    /// Tables that are known to be a VNIC's: what a lost file is restored from.
    pub owners: BTreeMap<Ocid, TableId>,
}

/// `tables.json`, in the directory that outlives a boot.
#[derive(Clone, Debug)]
pub struct SlotFile {
    path: PathBuf,
}

/// Why the slots are not known or not kept.
#[derive(Debug, Error)]
pub enum SlotError {
    /// The file cannot be read.
    #[error("reading {path}", path = .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file is not what we write.
    #[error("{path} is damaged; it is set aside, and the tables are restored from routes and allocations",
        path = .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What the parser says.
        #[source]
        source: serde_json::Error,
    },
    /// A later version's file.
    #[error("{path} has format version {found}, this build reads up to {VERSION}", path = .path.display())]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// The file cannot be written; the old one is intact.
    #[error("writing {path}", path = .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

#[derive(Serialize, Deserialize)]
struct Document {
    version: u32,
    slots: BTreeMap<Ocid, u32>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

impl Slots {
    /// The VNIC's table.
    #[must_use]
    pub fn table(&self, vnic: &Ocid) -> Option<TableId> {
        self.slots.get(vnic).map(|slot| table_of(*slot))
    }

    /// Whether exactly these VNICs have a slot, so that nothing is to be assigned or let go.
    #[must_use]
    pub fn are_for<'a>(&self, present: impl IntoIterator<Item = &'a Ocid>) -> bool {
        let present: BTreeSet<&Ocid> = present.into_iter().collect();
        present.len() == self.slots.len() && present.iter().all(|id| self.slots.contains_key(*id))
    }

    /// Gives every VNIC that is present a slot: the one it has, else the one its routes show, else the lowest that nobody
    /// has and nothing refers to. Lets go of those of VNICs that are gone once nothing refers to them.
    pub fn assign<'a>(&mut self, present: impl IntoIterator<Item = &'a Ocid>, referred: &Referred) {
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
    #[must_use]
    pub fn new(data_dir: &Path) -> Self {
        Self { path: data_dir.join(FILE) }
    }

    /// What the file says; nothing when there is none.
    ///
    /// # Errors
    /// When it cannot be read, is damaged or too new.
    pub fn read(&self) -> Result<Slots, SlotError> {
        let path = || self.path.clone();
        let damaged = |source| SlotError::Damaged { path: path(), source };
        let bytes = match read_state(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Slots::default()),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(damaged(serde_json::Error::custom(error)));
            }
            Err(source) => return Err(SlotError::Read { path: path(), source }),
        };
        let document: Document = serde_json::from_slice(&bytes).map_err(damaged)?;
        if document.version > VERSION {
            return Err(SlotError::TooNew { path: path(), found: document.version });
        }
        Ok(Slots { slots: document.slots, extra: document.extra })
    }

    /// Keeps a damaged file for whoever wants to know what happened to it, as `tables.json.damaged`.
    ///
    /// # Errors
    /// [`SlotError::Write`].
    pub fn set_aside(&self) -> Result<(), SlotError> {
        let wrap = |source| SlotError::Write { path: self.path.clone(), source };
        ipam::set_aside(&self.path).map(drop).map_err(wrap)
    }

    /// Replaces the file.
    ///
    /// # Errors
    /// [`SlotError::Write`].
    pub fn write(&self, slots: &Slots) -> Result<(), SlotError> {
        let wrap = |source: io::Error| SlotError::Write { path: self.path.clone(), source };
        let document = Document { version: VERSION, slots: slots.slots.clone(), extra: slots.extra.clone() };
        let mut bytes = serde_json::to_vec_pretty(&document).map_err(|error| wrap(error.into()))?;
        bytes.push(b'\n');
        write_atomically(&self.path, &bytes).map_err(wrap)
    }
}

const fn table_of(slot: u32) -> TableId {
    TableId(TABLE_BASE.saturating_add(slot))
}
