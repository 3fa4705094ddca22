//! OCI's view of one instance, as far as it matters here.

use std::collections::{BTreeMap, BTreeSet};

use api::AttachmentReason as Reason;
use oci::{AttachmentState, Error, InstanceState, IpObject, Subnet, Tagged, Vnic, VnicAttachment, VnicState};
use thiserror::Error as ThisError;
use vcn::{Family, Ocid};

use crate::attachment::mark::Uid;
use crate::attachment::observe::pod_network::PodNetwork;
use crate::attachment::refusal;
use crate::attachment::report::attachment_status::StatusReason;

/// An instance and its VNICs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The machine.
    pub machine: Machine,
    /// Its compartment, where it is to be seen.
    pub compartment: Option<Ocid>,
    /// Its attachments, those that are DETACHED included as long as the cloud lists them.
    pub attachments: Vec<Seen>,
    /// VNICs that people were told of, that are there, and whose attachments are not listed.
    pub unlisted: BTreeSet<Ocid>,
    /// The subnets that were asked for, as far as they can be seen.
    pub subnets: BTreeMap<Ocid, Subnet>,
    /// What OKE says of its pod network, where it was asked for.
    pub pod_network: Option<PodNetwork>,
}

/// The machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Machine {
    /// It is there.
    There {
        /// How far it is.
        state: InstanceState,
        /// Its shape's name.
        shape: String,
        /// The most VNICs that it may have, where that is known.
        most: Option<u32>,
    },
    /// 404: gone, or not ours to see.
    NotSeen,
}

/// An attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// As the cloud has it.
    pub attachment: VnicAttachment,
    /// Whom it is for.
    pub owner: Owner,
    /// Its VNIC, where it is ours and attached.
    pub vnic: Option<SeenVnic>,
}

/// Which object a VNIC attachment belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// To the VnicAttachment with this uid.
    Ours(Uid),
    /// To no VnicAttachment of this cluster.
    Foreign,
}

/// A VNIC with our marks, as OCI lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenVnic {
    /// It, and its version.
    pub vnic: Tagged<Vnic>,
    /// Its IPv4 addresses.
    pub ipv4: Listed,
    /// Its IPv6 addresses.
    pub ipv6: Listed,
}

/// The addresses of one family that a VNIC holds, its own included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listed {
    /// These and no others.
    Known(Vec<IpObject>),
    /// The cloud was asked, and does not say so to the controller: nothing may be concluded from it, and nothing done about them.
    Refused(StatusReason),
    /// Not read, because no step needs it.
    Unasked,
}

/// Why nothing is known of an instance.
#[derive(Debug, ThisError)]
pub enum Unread {
    /// The cloud did not answer.
    #[error(transparent)]
    Cloud(#[from] Error),
    /// A list without the primary VNIC is no answer, for every instance that lives has one: a list that lacks it may lack
    /// others, too.
    #[error("OCI lists {0} VNIC(s) of the instance, and none of them can be the primary one")]
    NotWhole(usize),
}

impl Observed {
    /// An instance of which nothing is to be seen.
    #[must_use]
    pub const fn not_seen() -> Self {
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

impl Unread {
    /// What it means to people.
    pub(in crate::attachment) fn said(&self) -> StatusReason {
        match self {
            Self::Cloud(error) => refusal::said(error, None),
            Self::NotWhole(_) => StatusReason::new(Reason::OciUnavailable, format!("{self}: retried")),
        }
    }

    /// The number that Oracle's support asks for.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        match self {
            Self::Cloud(error) => error.request_id(),
            Self::NotWhole(_) => None,
        }
    }

    /// Whether the cloud said nothing of the instance: a 404 after it was seen, or a list that lacks something, does.
    #[must_use]
    pub fn is_unanswered(&self) -> bool {
        matches!(self, Self::Cloud(error) if !error.is_not_found_or_forbidden())
    }
}

impl Seen {
    /// Whether it is for this object.
    #[must_use]
    pub fn is_for(&self, uid: &str) -> bool {
        matches!(&self.owner, Owner::Ours(own) if own == uid)
    }

    /// How far it is.
    #[must_use]
    pub const fn state(&self) -> AttachmentState {
        self.attachment.lifecycle_state
    }

    /// The primary VNIC is never ours.
    pub(super) fn may_be_primary(&self) -> bool {
        self.owner == Owner::Foreign && self.state().counts()
    }
}

impl SeenVnic {
    /// Its addresses of a family.
    #[must_use]
    pub const fn addresses(&self, family: Family) -> &Listed {
        match family {
            Family::Ipv4 => &self.ipv4,
            Family::Ipv6 => &self.ipv6,
        }
    }

    /// Whether it is on its way out, whatever its attachment says.
    #[must_use]
    pub const fn is_going(&self) -> bool {
        matches!(self.vnic.value.lifecycle_state, VnicState::Terminating | VnicState::Terminated)
    }

    /// Whether it is still being made, which it may be when its attachment is ATTACHED.
    #[must_use]
    pub const fn is_coming(&self) -> bool {
        matches!(self.vnic.value.lifecycle_state, VnicState::Provisioning)
    }

    /// Whether the cloud refused to list addresses of it.
    #[must_use]
    pub const fn is_unlisted(&self) -> bool {
        matches!((&self.ipv4, &self.ipv6), (Listed::Refused(_), _) | (_, Listed::Refused(_)))
    }

    /// Whether it may hold the address with this OCID.
    #[must_use]
    pub fn may_hold(&self, id: &Ocid) -> bool {
        [&self.ipv4, &self.ipv6].into_iter().any(|listed| match listed {
            Listed::Known(all) => all.iter().any(|own| own.id == *id),
            Listed::Refused(_) | Listed::Unasked => true,
        })
    }
}

impl Machine {
    /// Whether it runs or stands, and is not on its way out: its VNICs do not go with it.
    #[must_use]
    pub const fn is_up(&self) -> bool {
        matches!(self, Self::There { state: InstanceState::Running | InstanceState::Stopped, .. })
    }

    /// Whether it will never run again.
    #[must_use]
    pub const fn is_terminated(&self) -> bool {
        matches!(self, Self::There { state: InstanceState::Terminated, .. })
    }
}
