//! Removes our rules and proxy entries for addresses that no pod holds: a rule that stays misroutes the address's
//! next owner, here or on another node. They are left by plugins that were killed and by VNIC links that were renamed between
//! ADD and DEL; DEL no longer knows them, and GC may come late.

use std::collections::HashMap;
use std::time::Instant;

use datapath::{Snapshot, pod};

use super::context::Context;
use super::stage::unknown;
use super::{StageReport, host_network};

/// The most that is remembered; the rest follows when these are gone.
const REMEMBERED: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct OrphanedObjects {
    /// When each orphaned object was first seen, by its description.
    since: HashMap<String, Instant>,
}

impl OrphanedObjects {
    /// Removes orphans on a node with our pod network.
    pub(super) fn run(&mut self, context: &Context<'_>, report: &mut StageReport) {
        if !context.is_ours() {
            // The new owner may have assigned the addresses.
            self.since.clear();
        } else if let Err(error) = self.remove(context, report) {
            report.conditions.push(unknown("what is about no pod", error.as_ref()));
        }
    }

    /// Removes what has been orphaned for long enough, notes what seems so.
    fn remove(&mut self, context: &Context<'_>, report: &mut StageReport) -> Result<(), Box<dyn std::error::Error>> {
        let store = &context.node.store;
        let mut places = context.node.places()?;
        let found = pod::orphans(&Snapshot::of_host(&mut places)?);
        // Read after the kernel: an ADD writes its record before its network. A damaged record is reported by another stage.
        let Ok(held) = store.held() else { return Ok(()) };
        let before = std::mem::take(&mut self.since);
        for orphan in found.iter().filter(|orphan| !held.contains(&orphan.address)) {
            let text = orphan.step.to_string();
            let since = before.get(&text).copied().unwrap_or_else(Instant::now);
            if since.elapsed() >= context.node.settings.dead_after {
                let is_held = |address| store.held().is_ok_and(|held| held.contains(&address));
                match orphan.end(&mut places, is_held) {
                    Ok(is_removed) => {
                        let mut changed = host_network::changed(&orphan.step);
                        changed.text.push_str(" (of no pod)");
                        report.changes.extend(is_removed.then_some(changed));
                        continue;
                    }
                    Err(error) => report.conditions.push(unknown("what is about no pod", error.as_ref())),
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
