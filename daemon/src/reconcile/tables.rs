//! Which routing table each VNIC has: read from tables.json, assigned, and written back.

use std::path::Path;

use resident::logging::chain;
use vcn::Vnic;

use super::host;
use super::node_state::NodeState;
use crate::decide::desired::secondary;
use crate::decide::slots::{SlotError, SlotFile, Slots, TableReferences};
use crate::facts::condition::{Condition, Reason};

#[derive(Debug)]
pub(super) struct VnicTables {
    file: SlotFile,
    /// What the file holds; `None` until it was read.
    slots: Option<Slots>,
}

impl VnicTables {
    pub(super) fn new(data_dir: &Path) -> Self {
        Self { file: SlotFile::new(data_dir), slots: None }
    }

    /// Every VNIC's table; `None` if that cannot be known, and then nothing may be changed: what would look unwanted may be a
    /// pod's. If the file is lost or cannot be written, the kernel's rules and the allocations have the tables as well.
    pub(super) fn assign(
        &mut self,
        node: &NodeState,
        vnics: &[Vnic],
        is_preview: bool,
    ) -> (Option<Slots>, Vec<Condition>) {
        let failed = |error: &SlotError| Condition::degraded(Reason::StateFailed, chain(error)).about("tables.json");
        let read = self.slots.take().map_or_else(|| self.file.read(), Ok);
        let known = read.as_ref().cloned().unwrap_or_default();
        let mut conditions: Vec<Condition> = read.as_ref().err().map(failed).into_iter().collect();
        if vnics.is_empty() || known.are_for(secondary(vnics)) {
            self.slots = read.ok();
            return (Some(known), conditions);
        }
        let mut slots = known.clone();
        match referred(node, vnics) {
            Ok(referred) => slots.assign(secondary(vnics), &referred),
            Err(error) => {
                conditions.push(Condition::blocking(Reason::StateFailed, chain(&error)).about("routing tables"));
                return (None, conditions);
            }
        }
        let written = match &read {
            // The file of a newer version, or one on a broken disk, is not replaced.
            Err(SlotError::Read(_)) => return (Some(slots), conditions),
            _ if is_preview => return (Some(slots), conditions),
            Ok(_) if slots == known => Ok(()),
            Err(SlotError::Damaged(_)) => self.file.set_aside().and_then(|()| self.file.write(&slots)),
            _ => self.file.write(&slots),
        };
        match written {
            Ok(()) => self.slots = Some(slots.clone()),
            Err(error) => conditions.push(failed(&error)),
        }
        (Some(slots), conditions)
    }
}

/// What refers to our tables: routes and rules in the kernel, allocations and pools on disk.
fn referred(node: &NodeState, vnics: &[Vnic]) -> Result<TableReferences, netlink::Error> {
    let mut referred = host::referred(vnics)?;
    if let Ok(pools) = node.pools() {
        referred.owners.extend(pools.vnics.into_iter().map(|vnic| (vnic.vnic_id, vnic.table)));
    }
    // Without pods' tables a slot could be reused under a pod. The records have them without the index; for a record that
    // cannot be read, the rule in the kernel has it, and the host is still repaired.
    let recorded = node.store.recorded().unwrap_or_default();
    for held in recorded.into_iter().flat_map(|allocation| allocation.addresses) {
        referred.tables.insert(held.table);
        referred.owners.insert(held.vnic_id, held.table);
    }
    Ok(referred)
}
