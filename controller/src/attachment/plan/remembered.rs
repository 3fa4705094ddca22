//! What a planner is told of earlier looks.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use vcn::{Family, Ocid};

use crate::attachment::forgotten::{Doubt, Known};
use crate::attachment::setback::Rest;
use crate::attachment::verdict::Said;
use crate::work::Pause;

/// What one process remembers of an object. None of it is needed: it makes things quicker, and errors clearer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// How many tokens of VNICs the cloud refused for so long that what was made by them is gone. Nothing else may count here:
    /// another process, which has not heard of it, must come to the same token.
    pub spent_tokens: u32,
    /// The generation of the spec that its VNIC was last seen to be as, but for its addresses.
    pub as_asked: Option<i64>,
    /// How many tokens of addresses it found spent.
    pub spent_address_tokens: u32,
    /// For how long no VNIC of it was listed, since one was asked for.
    pub absent_for: Duration,
    /// For how long none was, whatever was asked for meanwhile.
    pub unlisted_for: Duration,
    /// In how many looks in turn its VNIC was listed as attached, and it or its addresses were not to be seen.
    pub unseen_looks: u32,
    /// Where the instance is answered 404: what speaks for its end, or against it.
    pub forgotten: Result<Known, Doubt>,
    /// The attach or detach of it that was refused or came to nothing last, since one was accepted.
    pub refused: Option<Refused>,
    /// The pause after something that came to nothing.
    pub rest: Option<Rest>,
    /// The pauses before a VNIC is changed again, or an address released again, that the cloud took a request for and shows as before.
    pub taken: HashMap<Ocid, Pause>,
    /// The attachment whose detach was accepted, as long as it may be carried out.
    pub detaches: Option<Ocid>,
    /// Families of which several addresses were asked for at once that are still coming.
    pub coming: HashSet<Family>,
    /// Whether several addresses that were asked for at once did not come, or were refused: one by one, some may be had.
    pub bulk_failed: bool,
}

impl Default for Remembered {
    fn default() -> Self {
        Self {
            spent_tokens: 0,
            as_asked: None,
            spent_address_tokens: 0,
            absent_for: Duration::ZERO,
            unlisted_for: Duration::ZERO,
            unseen_looks: 0,
            forgotten: Err(Doubt::NotLooked),
            refused: None,
            rest: None,
            taken: HashMap::new(),
            detaches: None,
            coming: HashSet::new(),
            bulk_failed: false,
        }
    }
}

/// A refusal, whatever for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its place among the refusals of the instance.
    pub turn: u64,
    /// What is told of it, or of the last one that was an answer.
    pub said: Said,
}
