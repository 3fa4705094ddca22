//! The stage that removes what is ours and about no pod: rules from addresses that nobody holds, and proxies for them. A rule
//! that stays behind leads the address's next owner, here or on another node, astray. They come of verbs that were killed
//! and of VNIC links that were renamed between ADD and DEL; DEL knows nothing of them any more, and GC comes when it comes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use datapath::{Places, pod};
use ipam::{BootId, Store};
use resident::logging::chain;

use super::{Findings, stages};
use crate::report::condition::{Condition, Reason};

/// The most that is remembered; more is looked at when these are gone.
const KEPT: usize = 4096;

/// The stage and what it remembers from pass to pass.
#[derive(Debug)]
pub(super) struct Orphans {
    store: Store,
    sysctl_root: PathBuf,
    /// The least time between the first look that finds something to be nobody's and the one that ends it.
    apart: Duration,
    /// What was nobody's, by its words, and since when.
    since: HashMap<String, Instant>,
}

impl Orphans {
    pub(super) fn new(state_dir: &Path, sysctl_root: &Path, boot: BootId, apart: Duration) -> Self {
        let (store, sysctl_root) = (Store::new(state_dir, boot), sysctl_root.to_owned());
        Self { store, sysctl_root, apart, since: HashMap::new() }
    }

    /// Another least time.
    pub(super) const fn keep_apart(&mut self, apart: Duration) {
        self.apart = apart;
    }

    /// Nothing is to be removed here any more, or not yet.
    pub(super) fn rest(&mut self) {
        self.since.clear();
    }

    /// Removes what has been nobody's for long enough, notes what seems so.
    pub(super) fn stage(&mut self, findings: &mut Findings) {
        let unknown = |error: &(dyn std::error::Error + 'static)| {
            Condition::degraded(Reason::HostNetworkFailed, chain(error)).about("what is about no pod")
        };
        let mut places = match Places::host(&self.sysctl_root) {
            Ok(places) => places,
            Err(error) => return findings.conditions.push(unknown(&error)),
        };
        let found = match pod::strays(&mut places) {
            Ok(found) => found,
            Err(error) => return findings.conditions.push(unknown(&error)),
        };
        // Read after the kernel: what an ADD has made was on record before. Of a damaged record another stage tells.
        let Ok(held) = self.store.held() else { return };
        // What could not be looked at is as old as it was.
        let before = std::mem::take(&mut self.since);
        for stray in found.iter().filter(|it| !held.contains(&it.address)) {
            let words = stray.step.to_string();
            let since = before.get(&words).copied().unwrap_or_else(Instant::now);
            if since.elapsed() >= self.apart {
                match stray.end(&mut places, |address| self.store.held().is_ok_and(|held| held.contains(&address))) {
                    Ok(true) => {
                        let mut changed = stages::changed(&stray.step);
                        changed.text.push_str(" (of no pod)");
                        findings.changes.push(changed);
                        continue;
                    }
                    Ok(false) => continue,
                    Err(failure) => findings.conditions.push(unknown(failure.as_ref())),
                }
            }
            // What resists, too: it is as old as it is.
            if self.since.len() < KEPT {
                self.since.insert(words, since);
            }
        }
    }
}
