//! What an ADD may choose addresses from, and what it learns about that: that a pod cannot have some of them turns out only
//! when its network is made.

use cni::Error;
use ipam::Pools;
use vcn::IfName;

/// How often an ADD takes other addresses, because pods use those it got that are on no record (all of them are taken in at
/// once, so a second time is rare already), or because those have more connections than can be forgotten.
const MOVES: usize = 3;

/// A problem with the addresses that were reserved for a pod: it cannot have them.
#[derive(Debug)]
pub(super) enum AddressProblem {
    /// Another pod has one of them.
    Taken,
    /// The host has no such link, and it is their VNIC's. Where an agent runs, the pools soon say so, too.
    Absent(IfName),
    /// Their VNIC's link is down, so a pod would have no network. An agent raises it within a second.
    Down(IfName),
    /// The kernel knows so many connections of their last owner that there was no time to forget them all.
    Remembered,
}

/// The pools, less what turned out not to be there.
pub(super) struct Offer<'a> {
    pub(super) pools: &'a Pools,
    /// Links of VNICs that the host does not have, or that are down.
    pub(super) avoided: Vec<IfName>,
    /// What the first of them was found by.
    missed: Option<Error>,
    moves: usize,
}

impl<'a> Offer<'a> {
    pub(super) const fn new(pools: &'a Pools) -> Self {
        Self { pools, avoided: Vec::new(), missed: None, moves: 0 }
    }

    /// Whether addresses may be given back for others that are better. Where connections cannot be forgotten in time, however
    /// often that is tried, a pod with an address of a doubtful past is better than none.
    pub(super) const fn has_patience(&self) -> bool {
        self.moves < MOVES
    }

    /// Takes note of the problem of a failed attempt.
    ///
    /// # Errors
    /// What ADD answers, where another try would be the same one.
    pub(super) fn learn(&mut self, problem: &AddressProblem, error: Error) -> Result<(), Error> {
        match problem {
            AddressProblem::Taken | AddressProblem::Remembered if self.has_patience() => self.moves += 1,
            AddressProblem::Absent(link) | AddressProblem::Down(link) if !self.avoided.contains(link) => {
                self.avoided.push(link.clone());
                self.missed.get_or_insert(error);
            }
            AddressProblem::Taken
            | AddressProblem::Remembered
            | AddressProblem::Absent(_)
            | AddressProblem::Down(_) => return Err(self.explain(error)),
        }
        Ok(())
    }

    /// What an ADD answers that no other VNIC helped either: that there are too few addresses, say, is for want of those
    /// that were avoided.
    pub(super) fn explain(&mut self, last: Error) -> Error {
        match self.missed.take() {
            Some(first) => first.with_details(format!("nor by another VNIC: {last}")),
            None => last,
        }
    }
}
