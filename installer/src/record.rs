//! What we did to the node's files, kept where it outlives a reboot: the text of configurations as we last wrote them, how
//! often somebody undid that, and what was there before us. Without it everything still works, but for telling our
//! additions from others', and for giving back what we replaced.

mod before;
mod file;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub(crate) use before::{BEFORE, Before};
pub(crate) use file::RecordFile;

/// So many repairs of one configuration within [`WINDOW`]; then we wait. Somebody who undoes ours as often as we write it
/// does so because of it: writing more often helps nobody, and every write makes the runtime load it all again.
pub(crate) const MOST_FIGHTS: usize = 5;

/// While it rests, a repair so often where the node is without any network for pods: whoever undid it may have ended since.
const PROBE: Duration = Duration::from_secs(60);

/// Repairs older than this are forgotten.
pub(crate) const WINDOW: Duration = Duration::from_secs(600);

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

/// A configuration that we write or add to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Configuration {
    /// All of it, as we last wrote it.
    pub(crate) written: Option<String>,
    /// What we last asked for, in it: for ours the whole, for others' our entry.
    pub(crate) wanted: Option<Value>,
    /// What was there before us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<Before>,
    /// When somebody had undone it and we repaired it, in seconds since 1970.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) fights: Vec<u64>,
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
    #[serde(flatten)]
    extra: Map<String, Value>,
}

impl Configuration {
    /// Counts a repair.
    pub(crate) fn fought(&mut self, now: SystemTime) {
        let recent = self.recent(now);
        self.fights.retain(|at| recent.contains(at));
        self.fights.push(seconds(now));
    }

    /// When the next repair may be made; `None`: at once. Sooner where without it no pod has a network.
    pub(crate) fn rests(&self, now: SystemTime, without_it_no_network: bool) -> Option<Duration> {
        let recent = self.recent(now);
        // The one that has to be forgotten first.
        let first = recent.len().checked_sub(MOST_FIGHTS).and_then(|at| recent.get(at))?;
        let after =
            |at: &u64, pause: Duration| pause.saturating_sub(Duration::from_secs(seconds(now).saturating_sub(*at)));
        let rest = after(first, WINDOW);
        let probe = recent.last().filter(|_| without_it_no_network).map_or(rest, |last| after(last, PROBE));
        Some(rest.min(probe)).filter(|rest| !rest.is_zero())
    }

    /// Repairs in the window, oldest first. Those of the future are of a clock that was wrong.
    pub(crate) fn recent(&self, now: SystemTime) -> Vec<u64> {
        let now = seconds(now);
        let mut recent: Vec<u64> = self.fights.clone();
        recent.retain(|at| *at <= now && now - at < WINDOW.as_secs());
        recent.sort_unstable();
        recent
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
