//! The last place that saw the probe's packets.

use vcn::words;

use crate::probe::{Evidence, ProbeReport};

/// A place where packets are seen, in the order of a packet and its answer. A status has its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tap {
    /// The source's route lookup.
    SourceRoute,
    /// The source's VNIC, on the way out.
    SourceOut,
    /// The target's VNIC, before netfilter.
    TargetIn,
    /// The target's VNIC, on the way out: its host answered.
    TargetOut,
    /// The source's VNIC, on the way in.
    SourceIn,
}

impl Tap {
    /// The last tap that saw packets. `None` if a tap that matters was not open: the source's own, or one that lost packets.
    pub fn last(evidence: &Evidence) -> Option<Self> {
        let source = complete(&evidence.attempt)?;
        if evidence.attempt.tally.received > 0 {
            return Self::last_of_some(evidence);
        }
        if source.taps.inward.packets > 0 {
            return Some(Self::SourceIn);
        }
        if source.taps.out.packets == 0 {
            return Some(Self::SourceRoute);
        }
        let Some(target) = &evidence.arrival else { return Some(Self::SourceOut) };
        let target = complete(target)?;
        Some(match (target.taps.inward.packets, target.taps.out.packets) {
            (0, _) => Self::SourceOut,
            (_, 0) => Self::TargetIn,
            _ => Self::TargetOut,
        })
    }

    /// The last tap that saw the lost packets where others passed: after it, there are fewer.
    fn last_of_some(evidence: &Evidence) -> Option<Self> {
        let (source, sent) = (&evidence.attempt.taps, u32::from(evidence.attempt.tally.sent));
        if source.out.packets < sent {
            return Some(Self::SourceRoute);
        }
        let Some(target) = &evidence.arrival else { return Some(Self::SourceOut) };
        let target = &complete(target)?.taps;
        Some(if target.inward.packets < source.out.packets {
            Self::SourceOut
        } else if target.out.packets < target.inward.packets {
            Self::TargetIn
        } else if source.inward.packets < target.out.packets {
            Self::TargetOut
        } else {
            Self::SourceIn
        })
    }
}

words!(
    Tap: SourceRoute = "the source's route lookup; no packet left",
    SourceOut = "the source's VNIC, outgoing",
    TargetIn = "the target's VNIC, incoming; no answer left",
    TargetOut = "the target's VNIC, outgoing: the answer",
    SourceIn = "the source's VNIC, incoming: an answer or error",
);

fn complete(report: &ProbeReport) -> Option<&ProbeReport> {
    (!report.taps.incomplete).then_some(report)
}
