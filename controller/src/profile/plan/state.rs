//! The progress of a node's VNICs of a profile, from the conditions of its VnicAttachments. Pure.

use api::condition::find;
use api::{AttachmentReason, Condition, ConditionType, VnicAttachment};

/// A node, or one of its VNICs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// Whether the VNIC is attached; all of them, for a node.
    pub attached: bool,
    /// Whether the VNIC is as requested in every respect; all of them, for a node.
    pub ready: bool,
    /// What a person must solve, worst first.
    pub trouble: Option<VnicProblem>,
}

/// What a person must solve.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum VnicProblem {
    /// Another requester has the name.
    Conflict(String),
    /// A limit, a permission, a wrong field.
    Failing(String),
    /// The Node gets no VNICs: it is not an instance, or another Node has its instance. It blocks no other Node.
    Excluded(String),
}

impl State {
    pub(crate) const READY: Self = Self { attached: true, ready: true, trouble: None };
    pub(crate) const ABSENT: Self = Self { attached: false, ready: false, trouble: None };

    /// Like ABSENT, with the reason.
    pub(crate) fn in_conflict(text: String) -> Self {
        Self { trouble: Some(VnicProblem::Conflict(text)), ..Self::ABSENT }
    }

    /// Like ABSENT, with the reason why the Node gets no VNIC now.
    pub(crate) fn failing(why: String) -> Self {
        Self { trouble: Some(VnicProblem::Failing(why)), ..Self::ABSENT }
    }

    /// Like ABSENT, with the reason why the Node gets none.
    pub(crate) fn excluded(why: String) -> Self {
        Self { trouble: Some(VnicProblem::Excluded(why)), ..Self::ABSENT }
    }

    /// Whether the Node gets no VNICs.
    pub(crate) const fn is_excluded(&self) -> bool {
        matches!(self.trouble, Some(VnicProblem::Excluded(_)))
    }

    /// From the object's conditions, if they describe its present spec.
    pub(crate) fn of(object: &VnicAttachment) -> Self {
        let Some(status) = object.status.as_ref().filter(|_| object.metadata.deletion_timestamp.is_none()) else {
            return Self::ABSENT;
        };
        let is_current = status.observed_generation >= object.metadata.generation;
        let is_true = |kind| find(&status.conditions, kind).is_some_and(Condition::is_true);
        Self {
            attached: is_true(ConditionType::Attached),
            ready: is_true(ConditionType::Ready) && is_current,
            trouble: find(&status.conditions, ConditionType::Ready).and_then(trouble),
        }
    }

    /// The combination of two.
    #[must_use]
    pub(crate) fn and(self, other: Self) -> Self {
        let trouble = match (self.trouble, other.trouble) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        Self { attached: self.attached && other.attached, ready: self.ready && other.ready, trouble }
    }
}

/// What does not resolve by itself.
fn trouble(ready: &Condition) -> Option<VnicProblem> {
    use AttachmentReason as R;
    let text =
        || if ready.message.is_empty() { ready.reason.clone() } else { format!("{}: {}", ready.reason, ready.message) };
    match R::from_word(&ready.reason)? {
        R::NameTaken => Some(VnicProblem::Conflict(text())),
        R::AttachFailed
        | R::PodNetworkUnknown
        | R::ShapeCapacity
        | R::LimitReached
        | R::SubnetFull
        | R::AddressTaken
        | R::InvalidSpec
        | R::Forbidden
        | R::NotAuthorizedOrNotFound
        | R::NotAuthenticated => Some(VnicProblem::Failing(text())),
        _ => None,
    }
}
