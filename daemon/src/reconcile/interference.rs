//! Other programs that change the network of this host: detected and reported, never fought.
//!
//! ```text
//!   host files (/etc, /run, /usr/lib) ─▶ checks ─┬─▶ conditions
//!   addresses, rules, nft chains ──────▶ kernel ─┘
//! ```

mod checks;
mod kernel;

use super::context::Context;
use super::{Stage, StageReport};
use crate::report::condition::Condition;
use crate::report::reconcile_report::Cause;

/// What the last full check found. A reconcile of cause kernel repeats it.
#[derive(Debug, Default)]
pub(super) struct Interference {
    found: Vec<Condition>,
    forward_filter: kernel::ForwardFilter,
}

impl Stage for Interference {
    fn run(&mut self, context: &Context<'_>) -> StageReport {
        let Some(network) = &context.wanted.network else { return StageReport::default() };
        if context.cause == Cause::Kernel {
            return StageReport::of_conditions(self.found.iter().cloned());
        }
        let mut found = self.forward_filter.check(network);
        found.extend(kernel::conflicts(context));
        found.extend(checks::run(context));
        if !context.is_preview() {
            self.found.clone_from(&found);
        }
        StageReport::of_conditions(found)
    }
}
