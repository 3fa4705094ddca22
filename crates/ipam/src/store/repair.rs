//! Repairs lost, damaged and leftover state from the files themselves. What the files cannot tell, the kernel's routes do:
//! [`Store::reconcile_with_kernel`].

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;

use cni::AttachmentKey;
use serde::de::Error as _;

use super::{Store, StoreUpdate};
use crate::file::set_aside;
use crate::records::name_of;
use crate::{Allocation, Allocations, BootTime, Error};

impl Store {
    /// Adds the records that the index lacks. Returns whether the index has entries without a record: a run was killed between
    /// two writes, or a record was lost. The kernel shows which ([`Self::reconcile_with_kernel`]).
    ///
    /// # Errors
    /// As [`Self::update`].
    pub fn sweep(&self) -> Result<bool, Error> {
        self.update(|held| Ok(!held.others.is_empty()))
    }

    /// The readable records of this boot, independent of the index. Needs no lock.
    ///
    /// # Errors
    /// When the records cannot be listed.
    pub fn recorded(&self) -> Result<Vec<Allocation>, Error> {
        let names = self.records.names()?;
        Ok(names.iter().filter_map(|name| self.records.read(name).ok().flatten()).collect())
    }

    /// Renames a damaged file to `….damaged` and returns that path; `None` if nothing is damaged any more. Addresses of a damaged
    /// record stay held and those of a lost index are missing, until [`Self::reconcile_with_kernel`].
    ///
    /// # Errors
    /// When it cannot be moved.
    pub fn set_aside(&self) -> Result<Option<PathBuf>, Error> {
        let _lock = self.lock()?;
        let all = match self.index() {
            Ok(Some((_, all))) => all,
            Ok(None) => {
                let lost = self.none();
                // The addresses of a damaged record are then unknown, as those of a damaged index are.
                if self
                    .unlisted(&lost)?
                    .iter()
                    .any(|name| matches!(self.read_unlisted(name, &lost), Err(Error::Damaged { .. })))
                {
                    self.stage_empty()?;
                    self.replace_index()?;
                }
                lost
            }
            Err(Error::Damaged { .. }) => {
                self.stage_empty()?;
                let aside = set_aside(&self.index);
                let aside = aside.map_err(|source| Error::Write { path: self.index.clone(), source })?;
                self.replace_index()?;
                return Ok(Some(aside));
            }
            Err(other) => return Err(other),
        };
        let mut aside = None;
        for held in &all.others {
            if matches!(self.record(held), Err(Error::Damaged { .. })) {
                aside = Some(self.records.set_aside(&held.name)?);
            }
        }
        for name in self.unlisted(&all)? {
            if matches!(self.read_unlisted(&name, &all), Err(Error::Damaged { .. })) {
                aside = Some(self.records.set_aside(&name)?);
            }
        }
        Ok(aside)
    }

    /// Removes the record of an attachment whose network is gone, when the index cannot be read or written. The addresses it
    /// `had` stay held until [`Self::reconcile_with_kernel`] or a rebuilt index starts their cooldown. Returns whether that is
    /// certain, and changes nothing otherwise. A sound index must still hold all of them. A damaged index hands out nothing, and
    /// a rebuilt one starts the cooldown of every unlisted address. A lost index makes it uncertain.
    ///
    /// # Errors
    /// As [`Self::read`]; those of the record and of the lock.
    pub fn let_go(&self, key: &AttachmentKey, had: &[IpAddr]) -> Result<bool, Error> {
        let _lock = self.lock()?;
        let sure = match self.index() {
            Ok(Some((_, all))) => had.iter().all(|address| all.in_use().any(|held| held == *address)),
            Ok(None) => false,
            Err(Error::Damaged { .. }) => true,
            Err(other) => return Err(other),
        };
        let name = name_of(key);
        match if sure { self.records.read(&name) } else { Ok(None) } {
            Ok(Some(record)) if record.key == *key => self.records.remove(&name)?,
            Err(Error::Damaged { .. }) => drop(self.records.set_aside(&name)?),
            Err(other) => return Err(other),
            Ok(_) => {}
        }
        Ok(sure)
    }

    /// Stages an empty index; every unlisted address starts in cooldown.
    fn stage_empty(&self) -> Result<(), Error> {
        let all = Allocations { rebuilt_at: Some(BootTime::now()?), ..self.none() };
        self.stage(&[], &StoreUpdate { index: None, records: Vec::new(), all }).map(drop)
    }

    /// Adds the records that the index lacks because it was lost or replaced: no verb leaves such a record. Returns the names of
    /// those without a meaning.
    pub(super) fn restore(&self, update: &mut StoreUpdate) -> Result<BTreeSet<String>, Error> {
        let mut void = BTreeSet::new();
        let lost = update.index.is_none();
        for name in self.unlisted(&update.all)? {
            match self.read_unlisted(&name, &update.all)? {
                Some(record) => {
                    let addresses = &record.addresses;
                    update.all.freed.retain(|freed| addresses.iter().all(|held| held.address != freed.address));
                    update.all.allocations.push(record.clone());
                    update.records.push(record);
                }
                None => {
                    void.insert(name);
                }
            }
        }
        if lost && !update.records.is_empty() {
            update.all.rebuilt_at = Some(BootTime::now()?);
        }
        Ok(void)
    }

    /// The names of the records that the index lacks.
    fn unlisted(&self, all: &Allocations) -> Result<BTreeSet<String>, Error> {
        let mut unlisted = self.records.names()?;
        let others = all.others.iter().map(|held| held.name.clone());
        for known in all.allocations.iter().map(|known| name_of(&known.key)).chain(others) {
            unlisted.remove(&known);
        }
        Ok(unlisted)
    }

    fn read_unlisted(&self, name: &str, all: &Allocations) -> Result<Option<Allocation>, Error> {
        match self.records.read(name)? {
            Some(record) if all.in_use().any(|address| record.held().contains(&address)) => {
                let source = serde_json::Error::custom("another attachment has its addresses");
                Err(Error::Damaged { path: self.records.path_of(&record), source })
            }
            record => Ok(record),
        }
    }
}
