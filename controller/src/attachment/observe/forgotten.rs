//! An instance that ended while no controller ran, and that the cloud has forgotten since: it answers 404 for ever. So it does
//! for one that was moved to where we may not look, so more is asked for, and for a day. Pure.
//!
//! What counts is the VNIC, and that is in its *subnet's* compartment, wherever its instance goes: who sees the subnet and
//! reads another VNIC there would see it, too.

use std::fmt;
use std::time::Duration;

use api::AttachmentReason as Reason;
use api::condition::Condition;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use vcn::Ocid;

/// How long all of it must have been so, by the condition in the object: whichever process saw it.
const A_DAY: SignedDuration = SignedDuration::from_hours(24);
/// So many regular looks one process must have seen it for, by its own clock: the other one may have been set.
const LOOKS: u32 = 12;
/// How every message about it begins.
const WORD: &str = "forgotten: ";

/// What was looked for besides the instance, for one object. What is not known is a doubt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Whether no Node says that it is the instance.
    pub no_node: bool,
    /// Whether the VNIC that people were told of is answered 404; so, too, if they were told of none.
    pub no_vnic: bool,
    /// Whether its subnet is seen.
    pub subnet: bool,
    /// How many compartments were listed, each to its end: the subnet's, and those that instances are seen in.
    pub compartments: Option<usize>,
    /// Whether none of these lists has an attachment of the instance, or for the object, or of its VNIC.
    pub unlisted: bool,
    /// Another VNIC in the subnet's compartment, which was read after that.
    pub witness: Option<Ocid>,
}

/// Why an instance may be there all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// Nobody has looked yet, or there was no answer: no reason to say anything new.
    NotLooked,
    /// A Node names it.
    Node,
    /// The VNIC is seen.
    Vnic,
    /// The subnet is not.
    Subnet,
    /// A compartment cannot be listed.
    NotListed,
    /// It is in a list.
    Listed,
    /// No other VNIC can be read where it would be.
    NoWitness,
}

/// What one process knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// For how long there has been no doubt.
    pub since: Duration,
    /// How many compartments were listed.
    pub compartments: usize,
}

/// When it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// By the calendar.
    pub now: Timestamp,
    /// The pause between two regular looks.
    pub resync: Duration,
}

impl Evidence {
    /// How many compartments were listed, if all of it is there.
    ///
    /// # Errors
    /// The first doubt.
    pub fn judge(&self) -> Result<usize, Doubt> {
        let all = [
            (self.no_node, Doubt::Node),
            (self.no_vnic, Doubt::Vnic),
            (self.subnet, Doubt::Subnet),
            (self.compartments.is_some(), Doubt::NotListed),
            (self.unlisted, Doubt::Listed),
            (self.witness.is_some(), Doubt::NoWitness),
        ];
        let doubt = all.iter().find(|(holds, _)| !holds).map(|(_, doubt)| *doubt);
        doubt.map_or(Ok(self.compartments.unwrap_or_default()), Err)
    }
}

impl Doubt {
    /// Whether something is seen of the instance; the others say that too little is seen to tell.
    #[must_use]
    pub const fn is_sight(self) -> bool {
        matches!(self, Self::Node | Self::Vnic | Self::Listed)
    }
}

/// What is to be said of an object whose instance is answered 404: the reason, and words that stay the same.
#[must_use]
pub fn said(told: Option<&Condition>, known: Result<Known, Doubt>, clock: Clock) -> (Reason, String) {
    let known = match known {
        Ok(known) => known,
        Err(doubt) => {
            let message = format!("GetInstance is answered 404; the instance may still exist: {doubt}");
            return (Reason::NotAuthorizedOrNotFound, message);
        }
    };
    let reason = told.and_then(|told| Reason::from_word(&told.reason));
    match (told, reason) {
        (Some(told), Some(Reason::InstanceForgotten)) if is_over(told, known, clock) => {
            (Reason::NodeGone, format!("{WORD}for a day {}", words(known)))
        }
        // The time of its last transition is that of the first look without doubt only if another status was told before.
        (_, Some(Reason::InstanceForgotten | Reason::NotAuthorizedOrNotFound)) => {
            (Reason::InstanceForgotten, format!("{WORD}{}", words(known)))
        }
        _ => {
            let message = "GetInstance is answered 404: the instance is gone, or the controller lacks permission";
            (Reason::NotAuthorizedOrNotFound, message.to_owned())
        }
    }
}

/// Whether a message is about an instance that was taken for terminated.
#[must_use]
pub fn is_about(message: &str) -> bool {
    message.starts_with(WORD)
}

fn is_over(told: &Condition, known: Known, clock: Clock) -> bool {
    // A clock that was set back makes it longer.
    clock.now.duration_since(told.last_transition_time.0) >= A_DAY && known.since >= clock.resync * LOOKS
}

fn words(known: Known) -> String {
    let Known { compartments, .. } = known;
    format!(
        "404 for instance and VNIC, not listed in {compartments} compartments, no Node; other VNICs there are visible"
    )
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotLooked => "no other evidence yet",
            Self::Node => "a Node names it",
            Self::Vnic => "its VNIC is visible",
            Self::Subnet => "its subnet is not visible either",
            Self::NotListed => "a compartment cannot be listed",
            Self::Listed => "OCI lists an attachment of it",
            Self::NoWitness => "no other VNIC of the subnet's compartment is visible",
        })
    }
}

#[cfg(test)]
mod tests;
