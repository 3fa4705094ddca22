//! Replacing what cannot be changed: one VNIC of a profile at a time. The next one goes only when every other one of the
//! profile that is as the template says is ready, so that a template that does not work costs one VNIC, not all. Pure.

use crate::profile::plan::step::Step;
use crate::profile::select::from_template::TemplateObject;

/// How far a VNIC is with its template.
#[derive(Debug)]
pub enum Course {
    /// As the template says and ready, or not ours to have.
    Settled,
    /// As the template says, or about to be, and not ready.
    Waits,
    /// To be replaced by this step.
    Old {
        /// Whether it is ready as it is.
        ready: bool,
        /// Replaces it.
        step: Box<Step>,
    },
}

/// The replacements of one profile.
#[derive(Debug, Default)]
pub struct Rollout {
    waits_for: Option<String>,
    /// Those that are ready come first: of those that are not, the new one may well not be either, and hold up the rest.
    old: Vec<(bool, Step)>,
}

impl Rollout {
    /// Adds a VNIC.
    pub fn add(&mut self, stamp: &TemplateObject, course: Course) {
        match course {
            Course::Settled => {}
            Course::Waits => self.waits_for = self.waits_for.take().or_else(|| Some(stamp.name.clone())),
            Course::Old { ready, step } => self.old.push((!ready, *step)),
        }
    }

    /// How many are to be replaced, and what the next one waits for. None where none is.
    #[must_use]
    pub fn standing(&self) -> Option<(usize, Option<String>)> {
        (!self.old.is_empty()).then(|| (self.old.len(), self.waits_for.clone()))
    }

    /// The next replacement, if it may go now.
    #[must_use]
    pub fn next(mut self) -> Option<Step> {
        if self.waits_for.is_some() {
            return None;
        }
        // Stable: among equals the order of the stamps.
        self.old.sort_by_key(|(not_ready, _)| *not_ready);
        self.old.into_iter().map(|(_, step)| step).next()
    }
}
