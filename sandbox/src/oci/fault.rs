//! What the API does wrong when told to.

use std::time::Duration;

use super::chance::Chance;
use super::route::Operation;

/// A fault of the API.
#[derive(Clone, Debug)]
pub struct ApiFault {
    kind: ApiFaultKind,
    operation: Option<Operation>,
    requests: Option<u32>,
    share: f64,
}

/// Kinds of faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiFaultKind {
    /// Refuses, with this status and code, and this `Retry-After` in seconds.
    Refuse {
        /// The status.
        status: u16,
        /// The code.
        code: String,
        /// The header.
        retry_after: Option<u32>,
    },
    /// Does as asked, but later.
    Delay(Duration),
    /// Does as asked, then breaks the connection instead of answering.
    LoseAnswer,
    /// Breaks the connection, and does nothing.
    LoseRequest,
    /// Does as asked, and answers 500.
    FailAfterwards,
    /// Takes a request to attach or detach, begins with it, and takes that back: the VNIC is not attached, or is as before.
    GiveUp,
}

impl ApiFault {
    /// A fault of every request.
    #[must_use]
    pub const fn new(kind: ApiFaultKind) -> Self {
        Self { kind, operation: None, requests: None, share: 1.0 }
    }

    /// A refusal of every request.
    #[must_use]
    pub fn refuse(status: u16, code: &str) -> Self {
        Self::new(ApiFaultKind::Refuse { status, code: code.to_owned(), retry_after: None })
    }

    /// Only of this operation.
    #[must_use]
    pub const fn of(mut self, operation: Operation) -> Self {
        self.operation = Some(operation);
        self
    }

    /// Only of the next so many requests that it fits.
    #[must_use]
    pub const fn times(mut self, requests: u32) -> Self {
        self.requests = Some(requests);
        self
    }

    /// Only of this share of the requests (0.0–1.0), by chance.
    #[must_use]
    pub const fn share(mut self, share: f64) -> Self {
        self.share = share;
        self
    }
}

/// The fault that befalls a request, if any; those that are over are dropped.
pub(super) fn pick(faults: &mut Vec<ApiFault>, operation: Operation, chance: &mut Chance) -> Option<ApiFaultKind> {
    let place = faults.iter().position(|fault| {
        fault.operation.is_none_or(|only| only == operation) && (fault.share >= 1.0 || chance.next() < fault.share)
    })?;
    let fault = faults.get_mut(place)?;
    let kind = fault.kind.clone();
    if let Some(left) = &mut fault.requests {
        *left = left.saturating_sub(1);
        if *left == 0 {
            faults.remove(place);
        }
    }
    Some(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_fits_its_operation_and_ends() {
        let mut faults = vec![ApiFault::refuse(429, "TooManyRequests").of(Operation::AttachVnic).times(2)];
        let mut chance = Chance::new(1);
        assert_eq!(pick(&mut faults, Operation::GetVnic, &mut chance), None);
        for _ in 0..2 {
            assert!(pick(&mut faults, Operation::AttachVnic, &mut chance).is_some());
        }
        assert_eq!(pick(&mut faults, Operation::AttachVnic, &mut chance), None);
    }

    #[test]
    fn a_tenth_is_about_a_tenth() {
        let mut faults = vec![ApiFault::new(ApiFaultKind::LoseAnswer).share(0.1)];
        let mut chance = Chance::new(7);
        let hits = (0..10_000).filter(|_| pick(&mut faults, Operation::GetVnic, &mut chance).is_some()).count();
        assert!((900..1100).contains(&hits), "{hits}");
    }
}
