//! The stage that removes our rules and proxy entries for addresses that no pod holds: a rule that stays misroutes the address's
//! next owner, here or on another node. They are left by plugins that were killed and by VNIC links that were renamed between
//! ADD and DEL; DEL no longer knows them, and GC may come late.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use datapath::{Places, pod};
use ipam::{BootId, Store};
use resident::logging::chain;

use super::context::Context;
use super::{Stage, StageReport, host_network};
use crate::report::condition::{Condition, Reason};

/// The most that is remembered; the rest follows when these are gone.
const REMEMBERED: usize = 4096;

/// The stage.
#[derive(Debug)]
pub(super) struct OrphanedObjects {
    store: Store,
    sysctl_root: PathBuf,
    /// When each orphaned object was first seen, by its description.
    since: HashMap<String, Instant>,
}

impl OrphanedObjects {
    pub(super) fn new(state_dir: &Path, sysctl_root: &Path, boot: BootId) -> Self {
        Self { store: Store::new(state_dir, boot), sysctl_root: sysctl_root.to_owned(), since: HashMap::new() }
    }

    /// Removes what has been orphaned for long enough, notes what seems so.
    fn remove(&mut self, context: &Context<'_>, report: &mut StageReport) -> Result<(), Box<dyn std::error::Error>> {
        let mut places = Places::host(&self.sysctl_root)?;
        let found = pod::orphans(&mut places)?;
        // Read after the kernel: an ADD writes its record before its network. A damaged record is reported by another stage.
        let Ok(held) = self.store.held() else { return Ok(()) };
        let before = std::mem::take(&mut self.since);
        for orphan in found.iter().filter(|orphan| !held.contains(&orphan.address)) {
            let text = orphan.step.to_string();
            let since = before.get(&text).copied().unwrap_or_else(Instant::now);
            if since.elapsed() >= context.settings.dead_after {
                let is_held = |address| self.store.held().is_ok_and(|held| held.contains(&address));
                match orphan.end(&mut places, is_held) {
                    Ok(is_removed) => {
                        let mut changed = host_network::changed(&orphan.step);
                        changed.text.push_str(" (of no pod)");
                        report.changes.extend(is_removed.then_some(changed));
                        continue;
                    }
                    Err(error) => report.conditions.push(unknown(error.as_ref())),
                }
            }
            // What could not be removed keeps its age.
            if self.since.len() < REMEMBERED {
                self.since.insert(text, since);
            }
        }
        Ok(())
    }
}

impl Stage for OrphanedObjects {
    fn run(&mut self, context: &Context<'_>) -> StageReport {
        let mut report = StageReport::default();
        if !context.is_ours() {
            // The new owner may have assigned the addresses.
            self.since.clear();
        } else if let Err(error) = self.remove(context, &mut report) {
            report.conditions.push(unknown(error.as_ref()));
        }
        report
    }
}

fn unknown(error: &(dyn std::error::Error + 'static)) -> Condition {
    Condition::degraded(Reason::HostNetworkFailed, chain(error)).about("what is about no pod")
}
