//! Compartments that cannot be listed; the others are listed all the same.

use std::collections::BTreeMap;

use oci::Error;
use resident::logging::chain;
use vcn::Ocid;

/// After so many 404 answers in a row a compartment is no longer listed: it is gone, or a policy is missing. A reconcile of
/// an instance in it makes it known again.
const GIVEN_UP: u32 = 3;

/// Those that could not be listed, with the number of 404 answers in a row.
#[derive(Debug, Default)]
pub struct FailedLists(BTreeMap<Ocid, u32>);

impl FailedLists {
    /// Records the result of listing, and logs news.
    pub(super) fn note(&mut self, compartment: &Ocid, error: Option<&Error>) {
        let before = self.0.get(compartment).copied();
        let Some(error) = error else {
            if self.0.remove(compartment).is_some() {
                tracing::info!(event = "compartment_scan.recovered", %compartment);
            }
            return;
        };
        if before.is_none() {
            let (error, request_id) = (chain(error), error.request_id());
            tracing::warn!(event = "compartment_scan.failed", %compartment, error, request_id, "the other compartments are listed");
        }
        let in_turn = before.unwrap_or(0).saturating_add(1);
        self.0.insert(compartment.clone(), if error.is_not_found_or_forbidden() { in_turn } else { 0 });
    }

    /// Their number.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Those that are no longer listed. They are removed here.
    pub(super) fn take_given_up(&mut self) -> Vec<Ocid> {
        let given_up: Vec<Ocid> = self.0.extract_if(.., |_, in_turn| *in_turn >= GIVEN_UP).map(|(id, _)| id).collect();
        for compartment in &given_up {
            tracing::warn!(event = "compartment_scan.given_up", %compartment, "it is listed again when an instance is found in it");
        }
        given_up
    }
}
