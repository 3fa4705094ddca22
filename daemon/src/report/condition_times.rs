//! Since when each condition lasts: the passes tell what is, this what was.

use std::collections::HashMap;

use crate::report::condition::{Condition, Reason};
use crate::report::reconcile_report::Pass;

/// When each condition of the last pass was first seen, in milliseconds since 1970.
#[derive(Debug, Default)]
pub struct Since(HashMap<Name, u64>);

/// One that says the same in other words is the same.
type Name = (Reason, Option<String>, bool);

impl Since {
    /// Notes a pass, and in it since when its conditions last.
    pub fn note(&mut self, pass: &mut Pass) {
        let before = std::mem::take(&mut self.0);
        for condition in &mut pass.conditions {
            let since = before.get(&name(condition)).copied().unwrap_or(pass.unix_millis);
            condition.since_unix_millis = Some(since);
            self.0.insert(name(condition), since);
        }
    }
}

fn name(condition: &Condition) -> Name {
    (condition.reason, condition.subject.clone(), condition.blocks())
}
