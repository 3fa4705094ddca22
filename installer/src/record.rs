//! What this program wrote into configurations, kept across reboots, and how often another program reverted that. Without it
//! everything still works, but a plugin that a setting no longer lists is taken for another program's. Our binaries need no
//! record: they have a mark.

pub(crate) mod backup;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::Error;
use crate::files::{read_document, write_document};

/// The format's number. Later versions only add fields, so that one version back can read them, and keeps them.
const VERSION: u32 = 1;

pub(crate) const FILE: &str = "installer.json";

/// Repairs of one file within [`WINDOW`] before the backoff. A program that reverts our file as often as we write it does so
/// because of it, and every write makes the runtime load all configurations again.
const LIMIT: usize = 5;

/// Older repairs do not count.
pub(crate) const WINDOW: Duration = Duration::from_secs(600);

/// Between repairs during the backoff: the other program may have stopped since, and pods may have no network until then.
const BACKOFF: u64 = 60;

/// The record. Unknown fields, of a later version, are kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Record {
    pub(crate) version: u32,
    /// Configurations by name: our own, and those that our plugin is chained into.
    pub(crate) configurations: BTreeMap<String, ConfigurationRecord>,
    #[serde(flatten)]
    extra: Map<String, Value>,
    /// It could not be read, so it may say more than what is known, and is not replaced.
    #[serde(skip)]
    pub(crate) is_unreadable: bool,
}

/// A configuration that we write or add to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ConfigurationRecord {
    /// Our part of it as last written: header and plugins of our own, or the whole copy. A kill before the first write leaves
    /// an entry without it.
    #[serde(rename = "wanted")]
    pub(crate) our_part: Option<Value>,
    /// The plugins that we put in. While a write is under way these are the old ones and the new ones, because a kill may
    /// leave either.
    pub(crate) plugins: BTreeSet<String>,
    /// When another program had reverted it and we repaired it, in seconds since 1970.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) rewrites: Vec<u64>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

impl Record {
    /// Reads it; no file is an empty record. One that is damaged or cannot be read is empty, and the error says why.
    pub(crate) fn read(data_dir: &Path) -> (Self, Option<Error>) {
        let path = data_dir.join(FILE);
        match read_document(&path) {
            Ok(record) => (record.unwrap_or_default(), None),
            Err(damaged @ Error::Record { .. }) => (Self::default(), Some(damaged)),
            Err(error) => {
                let record = Self { is_unreadable: true, ..Self::default() };
                (record, Some(Error::NotRecorded { path, source: Box::new(error) }))
            }
        }
    }

    /// Renames a damaged one, so that a person can look at it.
    pub(crate) fn set_aside(data_dir: &Path) -> Result<(), Error> {
        let path = data_dir.join(FILE);
        ipam::set_aside(&path).map(drop).map_err(Error::placing(&path, "setting it aside"))
    }

    /// Writes it, unless it could not be read, which is reported already.
    pub(crate) fn write(&self, data_dir: &Path) -> Result<(), Error> {
        if self.is_unreadable {
            return Ok(());
        }
        let (path, record) = (data_dir.join(FILE), Self { version: self.version.max(VERSION), ..self.clone() });
        write_document(&path, &record).map_err(|error| Error::NotRecorded { path, source: Box::new(error) })
    }

    pub(crate) fn conflist(&self) -> Option<&ConfigurationRecord> {
        self.configurations.get(vcn::CONFLIST_FILE)
    }
}

impl ConfigurationRecord {
    pub(crate) fn count(&mut self, now: SystemTime) {
        self.rewrites = self.recent(now);
        self.rewrites.push(seconds(now));
    }

    /// How long until the next repair may be made; `None`: at once.
    pub(crate) fn pause(&self, now: SystemTime) -> Option<Duration> {
        let recent = self.recent(now);
        let last = recent.last().filter(|_| recent.len() >= LIMIT)?;
        let pause = BACKOFF.saturating_sub(seconds(now).saturating_sub(*last));
        (pause > 0).then(|| Duration::from_secs(pause))
    }

    /// Repairs in the window, oldest first. A time in the future is of a wrong clock.
    pub(crate) fn recent(&self, now: SystemTime) -> Vec<u64> {
        let is_recent = |at: &u64| seconds(now).checked_sub(*at).is_some_and(|age| age < WINDOW.as_secs());
        let mut recent: Vec<u64> = self.rewrites.iter().copied().filter(is_recent).collect();
        recent.sort_unstable();
        recent
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
