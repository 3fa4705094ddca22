//! OCI's state of one instance, as far as the planner needs it.

use std::collections::{BTreeMap, BTreeSet};

use api::AttachmentReason as Reason;
use oci::{AttachmentState, Error, InstanceState, IpObject, Subnet, VersionedObject, Vnic, VnicAttachment, VnicState};
use thiserror::Error as ThisError;
use vcn::{Family, Ocid};

use crate::attachment::mark::Uid;
use crate::attachment::observe::pod_network::{PodNetwork, PodNetworkReadError};
use crate::attachment::refusal;
use crate::attachment::report::attachment_status::StatusReason;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Observed {
    pub machine: Machine,
    /// Its compartment, if visible.
    pub compartment: Option<Ocid>,
    /// Its attachments, including DETACHED ones that OCI still lists.
    pub attachments: Vec<ObservedAttachment>,
    /// Reported VNICs that exist, but whose attachments are not listed.
    pub unlisted: BTreeSet<Ocid>,
    /// The requested subnets, if visible.
    pub subnets: BTreeMap<Ocid, Subnet>,
    /// OKE's pod network, if it was read.
    pub pod_network: Option<PodNetwork>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Machine {
    There {
        state: InstanceState,
        shape: String,
        /// The most VNICs that it may have, if known.
        most: Option<u32>,
    },
    /// 404: gone, or not visible to us.
    NotSeen,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObservedAttachment {
    /// As OCI lists it.
    pub attachment: VnicAttachment,
    /// The uid of its VnicAttachment; `None` if it belongs to none of this cluster.
    pub owner: Option<Uid>,
    /// Its VNIC, if it has our marks and is attached.
    pub vnic: Option<ObservedVnic>,
}

/// A VNIC with our marks, as OCI lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObservedVnic {
    /// The VNIC, and its version.
    pub vnic: VersionedObject<Vnic>,
    pub ipv4: AddressList,
    pub ipv6: AddressList,
}

/// The addresses of one family that a VNIC holds, its own included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AddressList {
    Known(Vec<IpObject>),
    /// OCI refuses to list them: nothing may be concluded from that, and nothing done about them.
    Refused(StatusReason),
    /// Not read, because no step needs it.
    NotRead,
}

/// Why the state of an instance is unknown.
#[derive(Debug, ThisError)]
pub(crate) enum ReadError {
    /// OCI did not answer.
    #[error(transparent)]
    Cloud(#[from] Error),
    /// A list without the primary VNIC is not valid, because each living instance has one: it may lack others too.
    #[error("OCI lists {0} VNIC(s) of the instance, and none of them can be the primary one")]
    NotWhole(usize),
    /// A step depends on the pod network, and the API server does not answer.
    #[error(transparent)]
    PodNetwork(#[from] PodNetworkReadError),
}

impl Observed {
    pub(crate) const fn not_seen() -> Self {
        Self {
            machine: Machine::NotSeen,
            compartment: None,
            attachments: Vec::new(),
            unlisted: BTreeSet::new(),
            subnets: BTreeMap::new(),
            pod_network: None,
        }
    }
}

impl ReadError {
    /// Reason and message for people.
    pub(in crate::attachment) fn status_reason(&self) -> StatusReason {
        match self {
            Self::Cloud(error) => refusal::status_reason(error, None),
            Self::NotWhole(_) => StatusReason::new(Reason::OciUnavailable, format!("{self}: retried")),
            Self::PodNetwork(why) => StatusReason::new(Reason::PodNetworkUnanswered, why.words.clone()),
        }
    }

    /// The request id for Oracle's support.
    pub(crate) fn request_id(&self) -> Option<&str> {
        match self {
            Self::Cloud(error) => error.request_id(),
            Self::NotWhole(_) | Self::PodNetwork(_) => None,
        }
    }

    /// Whether nothing was reported about the instance. A 404 after it was seen, and an incomplete list, are reports.
    pub(crate) fn is_unanswered(&self) -> bool {
        match self {
            Self::Cloud(error) => !error.is_not_found_or_forbidden(),
            Self::NotWhole(_) => false,
            Self::PodNetwork(_) => true,
        }
    }
}

impl ObservedAttachment {
    pub(crate) fn is_for(&self, uid: &str) -> bool {
        self.owner.as_deref() == Some(uid)
    }

    pub(crate) const fn state(&self) -> AttachmentState {
        self.attachment.lifecycle_state
    }

    /// The primary VNIC never has our marks.
    pub(super) fn may_be_primary(&self) -> bool {
        self.owner.is_none() && self.state().counts()
    }
}

impl ObservedVnic {
    pub(crate) const fn addresses(&self, family: Family) -> &AddressList {
        match family {
            Family::Ipv4 => &self.ipv4,
            Family::Ipv6 => &self.ipv6,
        }
    }

    /// Whether it is going, whatever its attachment's state.
    pub(crate) const fn is_terminating(&self) -> bool {
        matches!(self.vnic.value.lifecycle_state, VnicState::Terminating | VnicState::Terminated)
    }

    /// Whether it is still being created, which is possible while its attachment is ATTACHED.
    pub(crate) const fn is_provisioning(&self) -> bool {
        matches!(self.vnic.value.lifecycle_state, VnicState::Provisioning)
    }

    /// Whether OCI refused to list addresses of it.
    pub(crate) const fn is_unlisted(&self) -> bool {
        matches!((&self.ipv4, &self.ipv6), (AddressList::Refused(_), _) | (_, AddressList::Refused(_)))
    }
}

impl Machine {
    /// Whether it runs or is stopped, and is not going: its VNICs stay.
    pub(crate) const fn is_up(&self) -> bool {
        matches!(self, Self::There { state: InstanceState::Running | InstanceState::Stopped, .. })
    }

    /// Whether it will never run again.
    pub(crate) const fn is_terminated(&self) -> bool {
        matches!(self, Self::There { state: InstanceState::Terminated, .. })
    }
}
