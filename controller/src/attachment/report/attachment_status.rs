//! What is to be said of an object: in how far it is as asked, why not, and what its VNIC is.

use std::net::IpAddr;

use api::AttachmentReason;
use vcn::Ocid;

/// What is to be said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachmentStatus {
    /// Whether the VNIC is on the instance, and why not.
    pub attached: StatusReason,
    /// Whether all is as asked, where that is another word.
    pub ready: Option<StatusReason>,
    /// The VNIC, as far as it is known.
    pub facts: Facts,
}

/// A reason, and in words what is special about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusReason {
    /// The word.
    pub reason: AttachmentReason,
    /// For people; the same as long as nothing changes.
    pub message: String,
    /// The number of the request that was refused.
    pub request_id: Option<String>,
}

/// The VNIC.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The VNIC.
    pub vnic_id: Option<Ocid>,
    /// Its own addresses.
    pub own_addresses: Vec<IpAddr>,
    /// The IPv4 addresses beside its own, if pods share it.
    pub pod_addresses: Vec<IpAddr>,
    /// How many it has beside its own.
    pub ipv4_count: Option<u32>,
    /// How many it has beside its own.
    pub ipv6_count: Option<u32>,
}

impl StatusReason {
    /// A reason and words.
    #[must_use]
    pub fn new(reason: AttachmentReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), request_id: None }
    }
}

impl AttachmentStatus {
    /// Not attached, nothing known of a VNIC.
    #[must_use]
    pub fn without_vnic(reason: AttachmentReason, message: impl Into<String>) -> Self {
        Self { attached: StatusReason::new(reason, message), ready: None, facts: Facts::default() }
    }

    /// The reason of the condition Ready.
    #[must_use]
    pub fn ready_reason(&self) -> AttachmentReason {
        self.ready.as_ref().unwrap_or(&self.attached).reason
    }

    /// The same, with a failure: it is about the VNIC's attachment as long as it is not attached, else about the rest.
    #[must_use]
    pub fn failed(mut self, said: StatusReason) -> Self {
        if self.attached.reason == AttachmentReason::Attached {
            self.ready = Some(said);
        } else {
            self.attached = said;
        }
        self
    }
}
