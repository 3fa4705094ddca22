//! Writes a change to disk.
//!
//! New files are staged first, so a full disk is noticed before anything changes. Then they are renamed, in an order that may be
//! interrupted anywhere: removed records, the index, new records.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;

use super::{Store, StoreUpdate};
use crate::file::{beside, stage};
use crate::records::name_of;
use crate::{Allocation, Allocations, Error};

/// A record that is new or has changed.
pub(super) struct RecordChange<'a> {
    record: &'a Allocation,
    /// The record in the store; `None` for a new one.
    before: Option<&'a Allocation>,
}

impl Store {
    /// Writes what has changed since the store was read; `gone` are records that nothing refers to.
    pub(super) fn keep(&self, update: &StoreUpdate, mut gone: BTreeSet<String>) -> Result<(), Error> {
        let mut before: HashMap<_, _> = update.records.iter().map(|record| (&record.key, record)).collect();
        let mut changed: Vec<RecordChange<'_>> = Vec::new();
        for record in &update.all.allocations {
            match before.remove(&record.key) {
                Some(same) if same == record => {}
                before => changed.push(RecordChange { record, before }),
            }
        }
        gone.extend(before.keys().map(|key| name_of(key)));
        let mut staged = self.stage(&changed, update);
        if matches!(&staged, Err(error) if error.is_no_space()) && changed.is_empty() {
            // Only something to free: its record makes room for the index. Without its record, an entry frees itself.
            gone.iter().try_for_each(|name| self.records.remove(name))?;
            staged = self.stage(&changed, update);
        }
        let replaced = staged.and_then(|index_changed| {
            gone.iter().try_for_each(|name| self.records.remove(name))?;
            match index_changed {
                true => self.replace_index(),
                // A DEL of what is not on record: whatever an ADD left that was killed before it was.
                false if !gone.is_empty() => self.discard_index(),
                false => Ok(()),
            }
        });
        if let Err(error) = replaced {
            // The first failure is returned; the next writer meets these again.
            changed.iter().for_each(|change| self.records.discard(change.record));
            let _ = self.discard_index();
            return Err(error);
        }
        for (at, change) in changed.iter().enumerate() {
            if let Err(error) = self.records.publish(change.record, change.before) {
                let (published, staged) = changed.split_at(at);
                self.take_back(published, staged, update);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Undoes a change after a record could not be renamed, as far as possible: removes new records that are `published`, and
    /// temporary files of those that are only `staged`. No address may be held without a record, and no
    /// record may stay without its addresses.
    fn take_back(&self, published: &[RecordChange<'_>], staged: &[RecordChange<'_>], update: &StoreUpdate) {
        let fresh = published.iter().filter(|change| change.before.is_none());
        fresh.for_each(|change| drop(self.records.remove(&name_of(&change.record.key))));
        staged.iter().for_each(|change| self.records.discard(change.record));
        let index = beside(&self.index, "new");
        let _ = match &update.index {
            Some(before) => stage(&index, before).and_then(|()| fs::rename(&index, &self.index)),
            None => fs::remove_file(&self.index),
        };
    }

    pub(super) fn replace_index(&self) -> Result<(), Error> {
        let wrap = |source| Error::Write { path: self.index.clone(), source };
        fs::rename(beside(&self.index, "new"), &self.index).map_err(wrap)
    }

    fn discard_index(&self) -> Result<(), Error> {
        let path = beside(&self.index, "new");
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::Write { path, source: error }),
            _ => Ok(()),
        }
    }

    /// Stages all changed files. Returns whether the index is among them.
    pub(super) fn stage(&self, changed: &[RecordChange<'_>], update: &StoreUpdate) -> Result<bool, Error> {
        let wrap = |source: io::Error| Error::Write { path: self.index.clone(), source };
        let written = |all: &Allocations| all.to_index().map_err(|error| wrap(error.into()));
        changed.iter().try_for_each(|change| self.records.stage(change.record, change.before))?;
        let after = written(&update.all)?;
        let same = match &update.index {
            Some(before) => *before == after,
            None => written(&self.none())? == after,
        };
        if !same {
            stage(&beside(&self.index, "new"), &after).map_err(wrap)?;
        }
        Ok(!same)
    }
}
