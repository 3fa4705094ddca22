//! Faults that tests inject into the metadata service.

use std::time::Duration;

use vcn::Ocid;

/// A fault of one node's metadata service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its kind.
    pub kind: FaultKind,
    /// The number of requests that it hits; all when `None`.
    pub requests: Option<u32>,
}

/// Kinds of faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Answers with this status: 404, 429 and 500 occur in practice.
    Status(u16),
    /// Answers correctly, but later.
    Delay(Duration),
    /// Answers correctly, but leaves this VNIC out.
    Without(Ocid),
    /// Answers 200 with a body that is no JSON.
    Garbage,
}

impl Fault {
    /// A fault that lasts until it is removed.
    #[must_use]
    pub const fn lasting(kind: FaultKind) -> Self {
        Self { kind, requests: None }
    }

    /// A fault of the next requests only.
    #[must_use]
    pub const fn of_next(requests: u32, kind: FaultKind) -> Self {
        Self { kind, requests: Some(requests) }
    }

    /// Uses the fault once: its kind, and the rest of it.
    pub(crate) fn spend(self) -> (Option<FaultKind>, Option<Self>) {
        match self.requests {
            None => (Some(self.kind.clone()), Some(self)),
            Some(0) => (None, None),
            Some(left) => {
                let rest = (left > 1).then(|| Self { requests: Some(left - 1), kind: self.kind.clone() });
                (Some(self.kind), rest)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_of_two_requests_ends_after_two() {
        let mut fault = Some(Fault::of_next(2, FaultKind::Garbage));
        let mut hits = 0;
        while let Some(current) = fault {
            let (kind, rest) = current.spend();
            hits += u32::from(kind.is_some());
            fault = rest;
        }
        assert_eq!(hits, 2);
    }
}
