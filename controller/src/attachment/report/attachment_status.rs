//! The planned status of an object: its readiness, the reason, and its VNIC.

use std::net::IpAddr;

use api::AttachmentReason;
use vcn::Ocid;

/// The planned status of one VnicAttachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachmentStatus {
    /// Whether the VNIC is attached, and why not.
    pub attached: StatusReason,
    /// Whether everything matches the spec, if the reason differs.
    pub ready: Option<StatusReason>,
    /// The VNIC, as far as it is known.
    pub facts: Facts,
}

/// A reason and its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusReason {
    /// The stable word of the condition.
    pub reason: AttachmentReason,
    /// For people; unchanged while the cause is.
    pub message: String,
    /// The id of the refused request.
    pub request_id: Option<String>,
}

/// What the status says of the VNIC.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The OCID of the VNIC, if one is known.
    pub vnic_id: Option<Ocid>,
    /// The addresses of the VNIC itself.
    pub own_addresses: Vec<IpAddr>,
    /// The IPv4 addresses in addition, if pods share it.
    pub pod_addresses: Vec<IpAddr>,
}

impl StatusReason {
    /// A reason and a message.
    pub fn new(reason: AttachmentReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), request_id: None }
    }
}

impl AttachmentStatus {
    /// Not attached, no VNIC known.
    pub fn without_vnic(reason: AttachmentReason, message: impl Into<String>) -> Self {
        Self { attached: StatusReason::new(reason, message), ready: None, facts: Facts::default() }
    }

    /// The reason of the condition Ready.
    pub fn ready_reason(&self) -> AttachmentReason {
        self.ready.as_ref().unwrap_or(&self.attached).reason
    }

    /// Adds a failure: it concerns the attachment while the VNIC is not attached, else the rest.
    #[must_use]
    pub fn failed(mut self, cause: StatusReason) -> Self {
        if self.attached.reason == AttachmentReason::Attached {
            self.ready = Some(cause);
        } else {
            self.attached = cause;
        }
        self
    }
}
