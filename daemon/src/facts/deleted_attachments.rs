//! Attachments that a DEL ended, for what is reported of a pod after its record is gone.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cni::AttachmentKey;
use telemetry::VerbRecord;

/// The largest number between two reconciles: far above the pods of a node. Reports about attachments above it end by time.
const LIMIT: usize = 4096;

#[derive(Debug, Default)]
pub struct DeletedAttachments(Mutex<HashSet<AttachmentKey>>);

impl DeletedAttachments {
    pub(crate) fn note(&self, record: &VerbRecord) {
        let VerbRecord { network, container_id, ifname, .. } = record;
        if record.verb != "DEL" || record.code != 0 {
            return;
        }
        let mut keys = self.keys();
        if keys.len() < LIMIT {
            keys.extend(format!("{network}/{container_id}/{ifname}").parse::<AttachmentKey>());
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys().is_empty()
    }

    pub(crate) fn take(&self) -> HashSet<AttachmentKey> {
        std::mem::take(&mut *self.keys())
    }

    fn keys(&self) -> MutexGuard<'_, HashSet<AttachmentKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_successful_del_of_a_valid_key_is_noted() {
        let deleted = DeletedAttachments::default();
        let record = |verb: &str, container: &str, code| VerbRecord {
            network: "vcn-native".into(),
            container_id: container.into(),
            ifname: "eth0".into(),
            code,
            ..VerbRecord::begin("vcn-native", "0", verb)
        };
        for record in [record("ADD", "a", 0), record("DEL", "b", 11), record("DEL", "../c", 0), record("DEL", "d", 0)] {
            deleted.note(&record);
        }
        assert_eq!(deleted.take(), HashSet::from(["vcn-native/d/eth0".parse().unwrap()]));
        assert!(deleted.is_empty());
        (0..2 * LIMIT).for_each(|number| deleted.note(&record("DEL", &format!("c{number}"), 0)));
        assert_eq!(deleted.take().len(), LIMIT);
    }
}
