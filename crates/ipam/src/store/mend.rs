//! What was lost, damaged or left is put right, as far as the files themselves can tell; the rest the kernel knows.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;

use cni::AttachmentKey;
use serde::de::Error as _;

use super::{Opened, Store};
use crate::file::set_aside;
use crate::records::name_of;
use crate::{Allocation, Allocations, BootTime, Error};

impl Store {
    /// Takes in the records that the index lacks. Answers whether it has entries without a record: a run was killed between
    /// two writes, or a record was lost, and the kernel must say which ([`Self::settle`]).
    ///
    /// # Errors
    /// As [`Self::update`].
    pub fn sweep(&self) -> Result<bool, Error> {
        self.update(|held| Ok(!held.others.is_empty()))
    }

    /// What records say of this boot, whatever becomes of the index; those that cannot be read are left out. Needs no lock.
    ///
    /// # Errors
    /// When it cannot be told which there are.
    pub fn recorded(&self) -> Result<Vec<Allocation>, Error> {
        let names = self.records.names()?;
        Ok(names.iter().filter_map(|name| self.records.read(name).ok().flatten()).collect())
    }

    /// Moves what is damaged out of the way, to `….damaged` beside it, and says where it is. What a record held stays held,
    /// what a lost index held is missing, both until the kernel was asked ([`Self::settle`]); `None` where nothing is damaged
    /// any more.
    ///
    /// # Errors
    /// When it cannot be moved.
    pub fn set_aside(&self) -> Result<Option<PathBuf>, Error> {
        let _lock = self.lock()?;
        let means = match self.index() {
            Ok(Some((_, means))) => means,
            Ok(None) => {
                let lost = self.none();
                // What a damaged record held is then as little known as what a damaged index did.
                if self.strays(&lost)?.iter().any(|name| matches!(self.stray(name, &lost), Err(Error::Damaged { .. })))
                {
                    self.stage_anew()?;
                    self.replace_index()?;
                }
                lost
            }
            Err(Error::Damaged { .. }) => {
                self.stage_anew()?;
                let aside = set_aside(&self.index);
                let aside = aside.map_err(|source| Error::Write { path: self.index.clone(), source })?;
                self.replace_index()?;
                return Ok(Some(aside));
            }
            Err(other) => return Err(other),
        };
        let mut aside = None;
        for held in &means.others {
            if matches!(self.record(held), Err(Error::Damaged { .. })) {
                aside = Some(self.records.set_aside(&held.name)?);
            }
        }
        for name in self.strays(&means)? {
            if matches!(self.stray(&name, &means), Err(Error::Damaged { .. })) {
                aside = Some(self.records.set_aside(&name)?);
            }
        }
        Ok(aside)
    }

    /// Lets an attachment go whose network is gone while the index cannot be read, or there is no room to write it: its record
    /// goes, and what it `had` stays taken until [`Self::settle`] or a rebuilt index lets it rest, from then on. Answers whether
    /// that is sure, and changes nothing where it is not. A sound index must still hold all of it; a damaged one gives nothing
    /// out, and made anew lets rest whatever it does not know. A lost one says nothing.
    ///
    /// # Errors
    /// As [`Self::read`]; those of the record and of the lock.
    pub fn let_go(&self, key: &AttachmentKey, had: &[IpAddr]) -> Result<bool, Error> {
        let _lock = self.lock()?;
        let sure = match self.index() {
            Ok(Some((_, means))) => had.iter().all(|address| means.in_use().any(|held| held == *address)),
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

    /// Writes an index beside its place that knows of nobody, and that whatever it does not know was somebody's until now.
    fn stage_anew(&self) -> Result<(), Error> {
        let means = Allocations { anew: Some(BootTime::now()?), ..self.none() };
        self.stage(&[], &Opened { index: None, records: Vec::new(), means }).map(drop)
    }

    /// Takes in the records that the index lacks: it was lost, or is not what it was, for no verb leaves a record so. Answers
    /// those that mean nothing.
    pub(super) fn restore(&self, opened: &mut Opened) -> Result<BTreeSet<String>, Error> {
        let mut void = BTreeSet::new();
        let lost = opened.index.is_none();
        for name in self.strays(&opened.means)? {
            match self.stray(&name, &opened.means)? {
                Some(record) => {
                    opened
                        .means
                        .freed
                        .retain(|freed| record.addresses.iter().all(|held| held.address != freed.address));
                    opened.means.allocations.push(record.clone());
                    opened.records.push(record);
                }
                None => {
                    void.insert(name);
                }
            }
        }
        if lost && !opened.records.is_empty() {
            opened.means.anew = Some(BootTime::now()?);
        }
        Ok(void)
    }

    /// The names of the records that the index lacks.
    fn strays(&self, means: &Allocations) -> Result<BTreeSet<String>, Error> {
        let mut strays = self.records.names()?;
        let others = means.others.iter().map(|held| held.name.clone());
        for known in means.allocations.iter().map(|known| name_of(&known.key)).chain(others) {
            strays.remove(&known);
        }
        Ok(strays)
    }

    fn stray(&self, name: &str, means: &Allocations) -> Result<Option<Allocation>, Error> {
        match self.records.read(name)? {
            Some(record) if means.in_use().any(|address| record.held().contains(&address)) => {
                let source = serde_json::Error::custom("another attachment has its addresses");
                Err(Error::Damaged { path: self.records.path_of(&record), source })
            }
            record => Ok(record),
        }
    }
}
