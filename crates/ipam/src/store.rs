//! The allocations on disk: read, changed and replaced under one lock, and nothing else under it.

mod attachment;
mod lock;
mod reconcile;
mod repair;
mod write;

pub use attachment::AttachmentLock;

use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cni::{AttachmentKey, ContainerId};
use serde::de::Error as _;

use crate::allocations::IndexEntry;
use crate::file;
use crate::records::{Records, name_of, shown};
use crate::{Allocation, Allocations, BootId, Error, FreedAddress};

const INDEX: &str = "allocations.json";
const LOCK: &str = "allocations.lock";
const ATTACHMENTS: &str = "attachments.lock";

/// The longest wait for the lock. It is held for file updates alone, less than a millisecond each: 250 pods at once are
/// through in a fraction of a second. With hundreds of programs per processor, each waits some 50 ms for its turn and the last
/// of 250 for more than ten seconds; failing would only restart the pod. A kubelet waits for minutes.
const PATIENCE: Duration = Duration::from_secs(30);

/// The allocations of a node.
#[derive(Clone, Debug)]
pub struct Store {
    index: PathBuf,
    lock: PathBuf,
    attachments: PathBuf,
    records: Records,
    boot: BootId,
    patience: Duration,
}

/// A change of the store under its lock: the files as they were read, and the allocations to write.
struct StoreUpdate {
    /// The index as it was read; `None` where there is none of this boot.
    index: Option<Vec<u8>>,
    /// The records that were read.
    records: Vec<Allocation>,
    /// What the allocations become.
    all: Allocations,
}

impl Store {
    /// The store in `state_dir`, in this boot. Touches nothing yet.
    pub fn new(state_dir: &Path, boot: BootId) -> Self {
        let records = Records::new(state_dir, boot.clone());
        let [index, lock, attachments] = [INDEX, LOCK, ATTACHMENTS].map(|file| state_dir.join(file));
        Self { index, lock, attachments, records, boot, patience: PATIENCE }
    }

    /// The same with another bound on the wait for the lock.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// What is handed out, as of one moment, but for what was taken down since. Needs no lock.
    ///
    /// # Errors
    /// Unreadable, damaged or too new; a missing file is not an error.
    pub fn read(&self) -> Result<Allocations, Error> {
        match self.read_sound()? {
            (all, None) => Ok(all),
            (_, Some(error)) => Err(error),
        }
    }

    /// The same, as far as it can be read: one damaged record does not hide the others. Also returns the error of the first
    /// record that cannot be read.
    ///
    /// # Errors
    /// As [`Self::read`], of the index.
    pub fn read_sound(&self) -> Result<(Allocations, Option<Error>), Error> {
        let Some((_, mut all)) = self.index()? else { return Ok((self.none(), None)) };
        let mut trouble = None;
        for held in std::mem::take(&mut all.others) {
            match self.records.read(&held.name) {
                Ok(Some(record)) if record.held() == held.addresses => all.allocations.push(record),
                // Being made or taken down at this moment, or left by one that was killed at it.
                Ok(_) => all.others.push(held),
                Err(error) => {
                    trouble.get_or_insert(error);
                    all.others.push(held);
                }
            }
        }
        Ok((all, trouble))
    }

    /// What was freed in this boot, oldest first. Needs no lock, and no record.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn freed(&self) -> Result<Vec<FreedAddress>, Error> {
        Ok(self.index()?.map(|(_, all)| all.freed).unwrap_or_default())
    }

    /// All held addresses, whether the record is readable or not. Needs no lock, and no record.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn held(&self) -> Result<HashSet<IpAddr>, Error> {
        Ok(self.index()?.map(|(_, all)| all.in_use().collect()).unwrap_or_default())
    }

    /// What one attachment holds. Needs no lock, and nothing of the others.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn find(&self, key: &AttachmentKey) -> Result<Option<Allocation>, Error> {
        Ok(self.records.read(&name_of(key))?.filter(|record| record.key == *key))
    }

    /// All that one container holds of one network by its records, whichever its links. Needs no lock, no index, and nothing of
    /// the others.
    ///
    /// # Errors
    /// When a record cannot be read.
    pub fn of_container(&self, network: &str, container: &ContainerId) -> Result<Vec<Allocation>, Error> {
        let shown = shown(container);
        let mut found = Vec::new();
        for name in self.records.names()? {
            if name.strip_prefix(shown).is_some_and(|rest| rest.starts_with('-')) {
                found.extend(self.records.read(&name)?);
            }
        }
        found.retain(|it| it.key.network.as_str() == network && it.key.container_id == *container);
        Ok(found)
    }

    /// Changes the allocations under the lock; what is written is what changed, and only when `change` succeeds.
    ///
    /// # Errors
    /// What `change` answers, or the files' own troubles. They then hold what they held before, unless a rename fails for
    /// which there was room and permission: then the same change again completes it.
    pub fn update<T, E: From<Error>>(&self, change: impl FnOnce(&mut Allocations) -> Result<T, E>) -> Result<T, E> {
        let _lock = self.lock()?;
        let mut update = self.open(|_| true)?;
        let gone = self.restore(&mut update)?;
        let answer = change(&mut update.all)?;
        self.keep(&update, gone)?;
        Ok(answer)
    }

    /// Changes one attachment's allocation, as [`Self::update`] does, at a cost that does not depend on the number of other
    /// attachments: `change` sees their addresses without their records.
    ///
    /// # Errors
    /// As [`Self::update`].
    pub fn update_for<T, E: From<Error>>(
        &self,
        key: &AttachmentKey,
        change: impl FnOnce(&mut Allocations) -> Result<T, E>,
    ) -> Result<T, E> {
        let _lock = self.lock()?;
        let name = name_of(key);
        let mut update = self.open(|held| held.name == name)?;
        let mut gone = match update.index {
            Some(_) => BTreeSet::new(),
            None => self.restore(&mut update)?,
        };
        let answer = change(&mut update.all)?;
        let namesake = update.records.iter().find(|other| other.key != *key && name_of(&other.key) == name);
        match (update.all.find(key), namesake) {
            (Some(_), Some(other)) => return Err(E::from(self.records.collision(other, key))),
            (None, None) => drop(gone.insert(name)),
            _ => {}
        }
        self.keep(&update, gone)?;
        Ok(answer)
    }

    /// Notes that the connections of freed addresses are forgotten, as [`Allocations::forget`] does. Answers how many.
    ///
    /// # Errors
    /// As [`Self::update`].
    pub fn forget(&self, freed: &[FreedAddress]) -> Result<usize, Error> {
        let _lock = self.lock()?;
        let mut update = self.open(|_| false)?;
        let noted = freed.iter().filter(|freed| update.all.forget(freed.address, freed.at)).count();
        self.keep(&update, BTreeSet::new())?;
        Ok(noted)
    }

    /// Marks an allocation that was reserved here as lasting.
    ///
    /// # Errors
    /// [`Error::NoAllocation`] when a DEL overtook the ADD; else the file's own troubles.
    pub fn commit(&self, key: &AttachmentKey) -> Result<(), Error> {
        let _lock = self.lock()?;
        let name = name_of(key);
        match self.records.make_lasting(&name)? || self.records.lasts(&name) {
            true => Ok(()),
            false => Err(Error::NoAllocation(key.to_string())),
        }
    }

    /// The allocations, with the records of those that `is_needed` selects. An entry without a record stays: only the kernel knows
    /// whether a pod uses its addresses.
    fn open(&self, is_needed: impl Fn(&IndexEntry) -> bool) -> Result<StoreUpdate, Error> {
        let (index, mut all) = match self.index()? {
            Some((index, all)) => (Some(index), all),
            None => (None, self.none()),
        };
        let mut records = Vec::new();
        for held in std::mem::take(&mut all.others) {
            match if is_needed(&held) { self.record(&held)? } else { None } {
                Some(record) => records.push(record),
                None => all.others.push(held),
            }
        }
        all.allocations.clone_from(&records);
        Ok(StoreUpdate { index, records, all })
    }

    /// The record of an entry of the index; under the lock, so that they belong together.
    fn record(&self, held: &IndexEntry) -> Result<Option<Allocation>, Error> {
        match self.records.read(&held.name)? {
            Some(record) if record.held() != held.addresses => {
                let source = serde_json::Error::custom(format!("{INDEX} has other addresses"));
                Err(Error::Damaged { path: self.records.path_of(&record), source })
            }
            record => Ok(record),
        }
    }

    /// The index and what it says; `None` where there is none of this boot.
    fn index(&self) -> Result<Option<(Vec<u8>, Allocations)>, Error> {
        let path = &self.index;
        let bytes = match file::read_state(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(Error::unread(path, source)),
        };
        let all: Allocations =
            serde_json::from_slice(&bytes).map_err(|source| Error::not_ours(path, &bytes, source))?;
        if all.version > Allocations::VERSION {
            return Err(Error::TooNew { path: path.clone(), found: all.version, known: Allocations::VERSION });
        }
        if let Some(twice) = all.listed_twice() {
            let source = serde_json::Error::custom(format!("{twice} is in it twice"));
            return Err(Error::Damaged { path: path.clone(), source });
        }
        // Pods do not survive a reboot, and neither does what they held.
        Ok((all.boot_id == self.boot).then_some((bytes, all)))
    }

    fn none(&self) -> Allocations {
        Allocations::none(self.boot.clone())
    }

    fn lock(&self) -> Result<File, Error> {
        lock::whole(&self.lock, self.patience)
    }
}
