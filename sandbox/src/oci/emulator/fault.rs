//! Faults that tests inject into the API.

use std::time::Duration;

use vcn::Family;

use super::Operation;
use super::message::{Refusal, refuse};

/// A fault of the API.
#[derive(Clone, Debug)]
pub struct ApiFault {
    pub(in crate::oci) kind: ApiFaultKind,
    pub(in crate::oci) operation: Option<Operation>,
    /// Only of this family's addresses.
    pub(in crate::oci) family: Option<Family>,
    requests: Option<u32>,
    share: f64,
    /// What came together of shares since the last hit.
    sum: f64,
}

/// The kinds of faults that the API can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiFaultKind {
    /// Refuses, and does nothing.
    Refuse(Refusal),
    /// Does as requested, then refuses.
    RefuseAfterwards(Refusal),
    /// Does as requested, but responds later.
    Delay(Duration),
    /// Does as requested, then breaks the connection.
    LoseAnswer,
    /// Breaks the connection, and does nothing.
    LoseRequest,
    /// Does as requested, and responds with status 500.
    FailAfterwards,
    /// Accepts a request to attach or detach, begins with it, and undoes that: the VNIC is not attached, or is as before.
    GiveUp,
}

impl ApiFault {
    /// A fault of every request.
    pub const fn new(kind: ApiFaultKind) -> Self {
        Self { kind, operation: None, family: None, requests: None, share: 1.0, sum: 0.0 }
    }

    /// A refusal of every request.
    pub fn refuse(status: u16, code: &str) -> Self {
        Self::new(ApiFaultKind::Refuse(refuse(status, code, "injected fault")))
    }

    /// Only of this operation.
    pub const fn of(mut self, operation: Operation) -> Self {
        self.operation = Some(operation);
        self
    }

    /// Only of the next so many requests that match.
    pub const fn times(mut self, requests: u32) -> Self {
        self.requests = Some(requests);
        self
    }

    /// Only of this share of the requests (0.0–1.0), evenly: the same ones in every run.
    pub const fn share(mut self, share: f64) -> Self {
        self.share = share;
        self
    }
}

/// The first fault that matches a request; one that is used up is removed.
pub(super) fn pick(faults: &mut Vec<ApiFault>, operation: Operation, family: Family) -> Option<ApiFaultKind> {
    let place = faults.iter_mut().position(|fault| {
        let is_meant =
            fault.operation.is_none_or(|only| only == operation) && fault.family.is_none_or(|only| only == family);
        if is_meant {
            fault.sum = fault.sum.fract() + fault.share;
        }
        is_meant && fault.sum >= 1.0
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
    fn a_share_of_a_tenth_hits_a_tenth() {
        let mut faults = vec![ApiFault::new(ApiFaultKind::LoseAnswer).share(0.1)];
        let hits = (0..10_000).filter(|_| pick(&mut faults, Operation::GetVnic, Family::Ipv4).is_some()).count();
        assert!((999..=1000).contains(&hits), "{hits}");
    }
}
