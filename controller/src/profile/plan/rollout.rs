//! Replaces VNICs whose immutable fields changed, one VNIC of a profile at a time. The next one is replaced only when all
//! others that match the template are ready, so a broken template costs one VNIC, not all. Pure.

use crate::profile::plan::step::Step;

/// The replacements of one profile.
#[derive(Debug, Default)]
pub(crate) struct Rollout {
    waits_for: Option<String>,
    /// Ready ones come first: if a VNIC is not ready, its replacement may not be ready either, and would block the rest.
    old: Vec<(bool, Step)>,
}

impl Rollout {
    /// This VNIC matches its template, or soon will, and is not ready.
    pub(crate) fn wait_for(&mut self, name: &str) {
        self.waits_for.get_or_insert_with(|| name.to_owned());
    }

    /// This step replaces a VNIC, which is ready as it is or not.
    pub(crate) fn replace(&mut self, ready: bool, step: Step) {
        self.old.push((!ready, step));
    }

    /// How many are to be replaced, and what the next one waits for; `None` if there are none.
    pub(crate) fn standing(&self) -> Option<(usize, Option<String>)> {
        (!self.old.is_empty()).then(|| (self.old.len(), self.waits_for.clone()))
    }

    /// The next replacement, if it may start now.
    #[must_use]
    pub(crate) fn next(mut self) -> Option<Step> {
        if self.waits_for.is_some() {
            return None;
        }
        // Stable: equal ones keep the order of the stamps.
        self.old.sort_by_key(|(not_ready, _)| *not_ready);
        self.old.into_iter().map(|(_, step)| step).next()
    }
}
