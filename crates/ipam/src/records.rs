//! allocations/: a record for each attachment. It is `<name>.tentative` until its ADD has succeeded and `<name>.json` from
//! then on, so that a commit is one rename.
//!
//! A record comes after its entry in the index and goes before it. So whatever a record says of its addresses holds, though
//! the index be lost, and an entry without record is an ADD or a DEL that was killed.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use cni::{AttachmentKey, ContainerId};
use serde::de::Error as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use vcn::fnv1a_32;

use crate::file::{self, stage};
use crate::{Allocation, Allocations, BootId, Error};

const FOLDER: &str = "allocations";
const LASTING: &str = "json";
const TENTATIVE: &str = "tentative";
const STAGED: &str = "new";
const DAMAGED: &str = "damaged";

/// How much of a container's id is in a record's name: as much as `crictl ps` shows.
const ID_SHOWN: usize = 13;

/// The folder of records.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    folder: PathBuf,
    boot: BootId,
}

/// A record as it is written.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RecordRef<'a> {
    version: u32,
    boot_id: &'a BootId,
    allocation: &'a Allocation,
}

/// A record as it is read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    version: u32,
    boot_id: BootId,
    allocation: Allocation,
}

/// The name of an attachment's record: `3f0c2a…-1a2b3c4d`, the container and a hash (FNV-1a) of the whole key.
pub(crate) fn name_of(key: &AttachmentKey) -> String {
    let parts = [key.network.as_str(), "/", key.container_id.as_str(), "/", key.ifname.as_str()];
    let bytes = parts.iter().flat_map(|part| part.bytes());
    let hash = fnv1a_32(bytes);
    format!("{}-{hash:08x}", shown(&key.container_id))
}

/// How a container's id is in the names of its records.
pub(crate) fn shown(container: &ContainerId) -> &str {
    let id = container.as_str();
    id.get(..ID_SHOWN).unwrap_or(id)
}

/// Whether a text can be a record's name: it becomes a path.
pub(crate) fn is_name(text: &str) -> bool {
    let usual = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric()) && text.bytes().all(usual)
}

const fn state_of(record: &Allocation) -> &'static str {
    if record.tentative_until.is_some() { TENTATIVE } else { LASTING }
}

impl Records {
    pub(crate) fn new(state_dir: &Path, boot: BootId) -> Self {
        Self { folder: state_dir.join(FOLDER), boot }
    }

    /// A record of this boot, where there is one.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Allocation>, Error> {
        // Once more the lasting one: who looks without lock may come just when it is committed.
        for state in [LASTING, TENTATIVE, LASTING] {
            let path = self.path(name, state);
            let bytes = match file::read_state(&path) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(source) => return Err(Error::unread(&path, source)),
            };
            let Record { version, boot_id, mut allocation } =
                serde_json::from_slice(&bytes).map_err(|source| Error::not_ours(&path, &bytes, source))?;
            if version > Allocations::VERSION {
                return Err(Error::TooNew { path, found: version, known: Allocations::VERSION });
            }
            if name_of(&allocation.key) != name {
                let source = serde_json::Error::custom(format!("it is of {}", allocation.key));
                return Err(Error::Damaged { path, source });
            }
            if state == LASTING {
                allocation.tentative_until = None;
            }
            return Ok((boot_id == self.boot).then_some(allocation));
        }
        Ok(None)
    }

    /// That an attachment's record would have another one's name.
    pub(crate) fn collision(&self, holder: &Allocation, key: &AttachmentKey) -> Error {
        Error::Collision { path: self.path_of(holder), holder: holder.key.to_string(), key: key.to_string() }
    }

    /// Where a record is.
    pub(crate) fn path_of(&self, record: &Allocation) -> PathBuf {
        self.path(&name_of(&record.key), state_of(record))
    }

    /// Whether there is a record that lasts.
    pub(crate) fn lasts(&self, name: &str) -> bool {
        self.path(name, LASTING).exists()
    }

    /// Makes a record last; whether there was a tentative one.
    pub(crate) fn make_lasting(&self, name: &str) -> Result<bool, Error> {
        self.rename(name, TENTATIVE, LASTING)
    }

    /// Writes a record beside its place. Where it changes `before`, what a newer build had to say in it stays.
    pub(crate) fn stage(&self, after: &Allocation, before: Option<&Allocation>) -> Result<(), Error> {
        let name = name_of(&after.key);
        let path = self.path(&name, STAGED);
        let write = || -> io::Result<()> {
            let mut document = Vec::with_capacity(1024);
            let record = RecordRef { version: Allocations::VERSION, boot_id: &self.boot, allocation: after };
            match before.and_then(|before| Some((before, self.document(before)?))) {
                Some((before, old)) => serde_json::to_writer(&mut document, &changed(old, before, after)?)?,
                None => serde_json::to_writer(&mut document, &record)?,
            }
            match stage(&path, &document) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    DirBuilder::new().mode(0o700).create(&self.folder)?;
                    stage(&path, &document)
                }
                other => other,
            }
        };
        write().map_err(|source| Error::Write { path: path.clone(), source })
    }

    /// Puts a staged record in its place, and in that of `before`.
    pub(crate) fn publish(&self, after: &Allocation, before: Option<&Allocation>) -> Result<(), Error> {
        let name = name_of(&after.key);
        if !self.rename(&name, STAGED, state_of(after))? {
            // Somebody emptied the folder meanwhile.
            return Err(Error::Write { path: self.path_of(after), source: io::ErrorKind::NotFound.into() });
        }
        match before.map(state_of).filter(|before| *before != state_of(after)) {
            Some(before) => self.unlink(&name, before),
            None => Ok(()),
        }
    }

    /// Takes back what was staged.
    pub(crate) fn discard(&self, allocation: &Allocation) {
        let _ = self.unlink(&name_of(&allocation.key), STAGED);
    }

    /// Removes whatever there is of a record.
    pub(crate) fn remove(&self, name: &str) -> Result<(), Error> {
        [LASTING, TENTATIVE, STAGED].into_iter().try_for_each(|state| self.unlink(name, state))
    }

    /// Moves a damaged record out of the way.
    pub(crate) fn set_aside(&self, name: &str) -> Result<PathBuf, Error> {
        for state in [LASTING, TENTATIVE] {
            self.rename(name, state, DAMAGED)?;
        }
        Ok(self.path(name, DAMAGED))
    }

    /// The names of all records that are there, of whatever boot.
    pub(crate) fn names(&self) -> Result<BTreeSet<String>, Error> {
        let wrap = |source| Error::Read { path: self.folder.clone(), source };
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
            other => other.map_err(wrap)?,
        };
        let mut names = BTreeSet::new();
        for entry in entries {
            let file = entry.map_err(wrap)?.file_name();
            let name = file.to_str().and_then(|file| file.rsplit_once('.'));
            let state = name.filter(|(_, state)| [LASTING, TENTATIVE, STAGED].contains(state));
            names.extend(state.map(|(name, _)| name.to_owned()));
        }
        Ok(names)
    }

    fn document(&self, before: &Allocation) -> Option<Value> {
        serde_json::from_slice(&file::read_state(&self.path_of(before)).ok()?).ok()
    }

    /// Whether it was there to be renamed.
    fn rename(&self, name: &str, from: &str, to: &str) -> Result<bool, Error> {
        let path = self.path(name, to);
        match fs::rename(self.path(name, from), &path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(Error::Write { path, source }),
        }
    }

    fn unlink(&self, name: &str, state: &str) -> Result<(), Error> {
        let path = self.path(name, state);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::Write { path, source: error }),
            _ => Ok(()),
        }
    }

    fn path(&self, name: &str, state: &str) -> PathBuf {
        let mut file = String::with_capacity(name.len() + 1 + TENTATIVE.len());
        file.push_str(name);
        file.push('.');
        file.push_str(state);
        self.folder.join(file)
    }
}

/// A record's document after a change: the fields that changed are exchanged, whole, and all others stay as they are.
fn changed(mut document: Value, before: &Allocation, after: &Allocation) -> serde_json::Result<Value> {
    let (before, after) = (serde_json::to_value(before)?, serde_json::to_value(after)?);
    if let (Some(fields), Value::Object(before), Value::Object(after)) =
        (document.get_mut("allocation").and_then(Value::as_object_mut), before, after)
    {
        fields.retain(|name, _| after.contains_key(name) || !before.contains_key(name));
        let changed = |(name, value): &(String, Value)| before.get(name) != Some(value);
        fields.extend(after.into_iter().filter(changed));
    }
    Ok(document)
}
