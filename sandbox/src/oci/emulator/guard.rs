//! What stands before every operation: injected faults, the rate limit.

use std::time::Duration;

use vcn::Family;

use super::fault::{ApiFaultKind, pick};
use super::{Emulator, HandledRequest, Operation, OperationResult, Outcome, Task, refuse};

impl Emulator {
    /// Applies the injected faults to an operation, and counts its response.
    pub(in crate::oci) fn guard(
        &self,
        operation: Operation,
        family: Family,
        work: impl FnOnce() -> Outcome<OperationResult>,
    ) -> HandledRequest {
        let fault = { pick(&mut self.state().faults, operation, family) };
        let mut handled = match &fault {
            Some(ApiFaultKind::Refuse(refusal)) => HandledRequest::of(refusal.clone().into()),
            Some(ApiFaultKind::LoseRequest) => HandledRequest { response: None, delay: Duration::ZERO, later: None },
            _ => match work() {
                Ok(OperationResult { response, later, .. }) => HandledRequest { later, ..HandledRequest::of(response) },
                Err(refusal) => HandledRequest::of(refusal.into()),
            },
        };
        match fault {
            Some(ApiFaultKind::GiveUp) => {
                if let Some((_, task)) = &mut handled.later
                    && let Task::Attach(id) | Task::Detach(id) = task
                {
                    *task = Task::GiveUp(id.clone());
                }
            }
            Some(ApiFaultKind::Delay(delay)) => handled.delay = delay,
            Some(ApiFaultKind::LoseAnswer) => handled.response = None,
            Some(ApiFaultKind::RefuseAfterwards(refusal)) => handled.response = Some(refusal.into()),
            Some(ApiFaultKind::FailAfterwards) => {
                handled.response = Some(refuse(500, "InternalServerError", "injected fault").into());
            }
            _ => {}
        }
        let status = handled.response.as_ref().map_or(0, |response| response.status);
        *self.state().answered.entry((operation, status)).or_default() += 1;
        handled
    }
}
