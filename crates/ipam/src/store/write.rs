//! Writes a change to disk.
//!
//! New files are staged first, so a full disk is noticed before anything changes. Then they are renamed, in an order that may be
//! interrupted anywhere: removed records, the index, new records.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;

use super::{Opened, Store};
use crate::file::{beside, stage};
use crate::records::name_of;
use crate::{Allocation, Allocations, Error};

/// A record as it is to be, and as it was.
type Changed<'a> = (&'a Allocation, Option<&'a Allocation>);

impl Store {
    /// Writes what has changed since it was opened; `gone` are records that nothing refers to.
    pub(super) fn keep(&self, opened: &Opened, mut gone: BTreeSet<String>) -> Result<(), Error> {
        let mut before: HashMap<_, _> = opened.records.iter().map(|record| (&record.key, record)).collect();
        let mut changed: Vec<Changed<'_>> = Vec::new();
        for record in &opened.means.allocations {
            match before.remove(&record.key) {
                Some(same) if same == record => {}
                known => changed.push((record, known)),
            }
        }
        gone.extend(before.keys().map(|key| name_of(key)));
        let mut staged = self.stage(&changed, opened);
        if matches!(&staged, Err(error) if error.is_no_space()) && changed.is_empty() {
            // Only something to free: its record makes room for the index. Without its record, an entry frees itself.
            gone.iter().try_for_each(|name| self.records.remove(name))?;
            staged = self.stage(&changed, opened);
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
            changed.iter().for_each(|(record, _)| self.records.discard(record));
            let _ = self.discard_index();
            return Err(error);
        }
        for (at, (record, before)) in changed.iter().enumerate() {
            if let Err(error) = self.records.publish(record, *before) {
                self.take_back(changed.split_at(at), opened);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Undoes a change after a record could not be renamed, as far as possible: no address may be held without a record, and no
    /// record may stay without its addresses.
    fn take_back(&self, (published, staged): (&[Changed<'_>], &[Changed<'_>]), opened: &Opened) {
        let fresh = published.iter().filter(|(_, before)| before.is_none());
        fresh.for_each(|(record, _)| drop(self.records.remove(&name_of(&record.key))));
        staged.iter().for_each(|(record, _)| self.records.discard(record));
        let index = beside(&self.index, "new");
        let _ = match &opened.index {
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
    pub(super) fn stage(&self, changed: &[Changed<'_>], opened: &Opened) -> Result<bool, Error> {
        let wrap = |source: io::Error| Error::Write { path: self.index.clone(), source };
        let written = |means: &Allocations| means.to_index().map_err(|error| wrap(error.into()));
        changed.iter().try_for_each(|(record, before)| self.records.stage(record, *before))?;
        let after = written(&opened.means)?;
        let same = match &opened.index {
            Some(before) => *before == after,
            None => written(&self.none())? == after,
        };
        if !same {
            stage(&beside(&self.index, "new"), &after).map_err(wrap)?;
        }
        Ok(!same)
    }
}
