//! Other programs that change the network of this host: detected and reported, never fought.
//!
//! ```text
//!   host files (/etc, /run, /usr/lib) ─▶ checks ─┬─▶ conditions
//!   addresses, rules, nft chains ──────▶ kernel ─┤
//!   the kernel's choice of routes ─────▶ routes ─┘
//! ```

mod checks;
mod kernel;
mod routes;

use std::time::{Duration, Instant};

use super::StageReport;
use super::context::Context;
use crate::facts::condition::Condition;
use crate::facts::reconcile_report::Cause;

/// What the last full check found. A reconcile of cause kernel repeats it.
#[derive(Debug, Default)]
pub(super) struct Interference {
    found: Vec<Condition>,
    forward_filter: kernel::ForwardFilter,
    routes: routes::RouteCheck,
}

impl Interference {
    pub(super) fn run(&mut self, context: &Context<'_>, report: &mut StageReport) {
        let Some(network) = &context.desired.network else { return };
        // Also after each event: a rule of another program takes effect at once.
        let misrouted = self.routes.check(network, context, report);
        report.conditions.extend(misrouted);
        if context.cause == Cause::Kernel {
            report.conditions.extend(self.found.iter().cloned());
            return;
        }
        let mut found = self.forward_filter.check(network);
        found.extend(kernel::conflicts(context));
        found.extend(checks::run(context));
        if !context.is_preview() {
            self.found.clone_from(&found);
        }
        report.conditions.extend(found);
    }
    /// Whether a postponed check is due.
    pub(super) fn is_check_due(&mut self) -> bool {
        self.routes.take_due(Instant::now())
    }

    /// The time until the next check is due although nothing happens.
    pub(super) fn again(&self) -> Option<Duration> {
        self.routes.again(Instant::now())
    }
}
