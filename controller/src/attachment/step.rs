//! The steps from the observed to the desired state, in an operator's words.

use std::fmt;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use oci::{AttachVnic, Etag, FreeformTags, RetryToken, UpdateVnic};
use vcn::{Family, Ocid};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub object: String,
    pub action: Action,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Add the finalizer, which keeps the object until its VNIC is gone.
    AddFinalizer,
    RemoveFinalizer,
    /// Request the VNIC. It appears later.
    Attach(Box<AttachVnic>, RetryToken),
    /// Detach it, which deletes it. It goes later.
    Detach(Ocid),
    Update(VnicVersion, Box<UpdateVnic>),
    /// Remove our tags: it is no longer managed.
    Disown(VnicVersion, Box<UpdateVnic>),
    /// Add a requested address, or (`None`) any.
    CreateAddress(NewAddress, Option<IpAddr>),
    /// Add several of any address. They appear later.
    CreateAddresses(NewAddress, u32),
    DeleteAddress {
        family: Family,
        id: Ocid,
        address: IpAddr,
    },
}

/// A VNIC in the version that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VnicVersion {
    pub id: Ocid,
    pub etag: Option<Etag>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewAddress {
    pub vnic: Ocid,
    pub family: Family,
    /// The block of the subnet, if OCI requires it.
    pub block: Option<IpNetwork>,
    pub tags: FreeformTags,
    pub token: RetryToken,
}

impl Action {
    /// The step's name in metrics.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::AddFinalizer => "add_finalizer",
            Self::RemoveFinalizer => "remove_finalizer",
            Self::Attach(..) => "attach",
            Self::Detach(_) => "detach",
            Self::Update(..) => "update",
            Self::Disown(..) => "disown",
            Self::CreateAddress(..) => "create_address",
            Self::CreateAddresses(..) => "create_addresses",
            Self::DeleteAddress { .. } => "delete_address",
        }
    }

    pub(crate) const fn is_create_address(&self) -> bool {
        matches!(self, Self::CreateAddress(..) | Self::CreateAddresses(..))
    }

    /// Whether it takes effect later, so that another reconcile at once would show nothing.
    pub(crate) const fn comes_later(&self) -> bool {
        matches!(self, Self::Attach(..) | Self::Detach(_) | Self::CreateAddresses(..))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.object)?;
        match &self.action {
            Action::AddFinalizer => f.write_str("add the finalizer"),
            Action::RemoveFinalizer => f.write_str("remove the finalizer"),
            Action::Attach(request, _) => {
                let subnet = request.create_vnic_details.subnet_id.as_ref().map_or("?", Ocid::as_str);
                write!(f, "attach a VNIC in {subnet} to {}", request.instance_id)?;
                match request.nic_index {
                    Some(index) if index > 0 => write!(f, ", port {index}"),
                    _ => Ok(()),
                }
            }
            Action::Detach(attachment) => write!(f, "detach {attachment}"),
            Action::Update(vnic, change) => write!(f, "update {}: {}", vnic.id, fields(change)),
            Action::Disown(vnic, _) => {
                write!(f, "take our tags off {}, but for one that says it was released", vnic.id)
            }
            Action::CreateAddress(new, Some(address)) => write!(f, "give {address} to {}", new.vnic),
            Action::CreateAddress(new, None) => write!(f, "give 1 {} address to {}", new.family, new.vnic),
            Action::CreateAddresses(new, count) => write!(f, "give {count} {} addresses to {}", new.family, new.vnic),
            Action::DeleteAddress { address, .. } => write!(f, "release {address}"),
        }
    }
}

fn fields(change: &UpdateVnic) -> String {
    let fields = [
        ("display name", change.display_name.is_some()),
        ("security groups", change.nsg_ids.is_some()),
        ("source/destination check", change.skip_source_dest_check.is_some()),
        ("tags", change.freeform_tags.is_some()),
    ];
    let fields: Vec<&str> = fields.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| *name).collect();
    fields.join(", ")
}
