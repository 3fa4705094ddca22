//! From method and path to the operation that Oracle names.

use hyper::Method;
use vcn::Family;

/// An operation of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// `GET /instances/{id}`
    GetInstance,
    /// `GET /shapes`
    ListShapes,
    /// `GET /subnets/{id}`
    GetSubnet,
    /// `POST /vnicAttachments`
    AttachVnic,
    /// `GET /vnicAttachments`
    ListVnicAttachments,
    /// `GET /vnicAttachments/{id}`
    GetVnicAttachment,
    /// `DELETE /vnicAttachments/{id}`
    DetachVnic,
    /// `GET /vnics/{id}`
    GetVnic,
    /// `PUT /vnics/{id}`
    UpdateVnic,
    /// `POST /privateIps`, `POST /ipv6`
    CreateAddress,
    /// `GET /privateIps`, `GET /ipv6`
    ListAddresses,
    /// `GET /privateIps/{id}`, `GET /ipv6/{id}`
    GetAddress,
    /// `DELETE /privateIps/{id}`, `DELETE /ipv6/{id}`
    DeleteAddress,
    /// `POST /privateIps/actions/bulkCreatePrivateIps`, `POST /ipv6/actions/bulkCreateIpv6s`
    BulkCreateAddresses,
    /// `POST /privateIps/actions/bulkDeletePrivateIps`, `POST /ipv6/actions/bulkDeleteIpv6s`
    BulkDeleteAddresses,
    /// `POST /v1/x509` of the federation service
    Federate,
    /// `POST /resourcePrincipalSessionTokens` of proxymux
    WorkloadToken,
}

/// An operation and what it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) operation: Operation,
    /// The OCID in the path.
    pub(super) id: String,
    /// Of address operations.
    pub(super) family: Family,
}

pub(super) fn route(method: &Method, path: &str) -> Option<Route> {
    use Operation::*;
    let verb = method.as_str();
    let parts: Vec<&str> = path.strip_prefix("/20160918/")?.split('/').collect();
    let family = if parts.first() == Some(&"ipv6") { Family::Ipv6 } else { Family::Ipv4 };
    let (operation, id) = match (verb, parts.as_slice()) {
        ("GET", ["instances", id]) => (GetInstance, *id),
        ("GET", ["shapes"]) => (ListShapes, ""),
        ("GET", ["subnets", id]) => (GetSubnet, *id),
        ("POST", ["vnicAttachments"]) => (AttachVnic, ""),
        ("GET", ["vnicAttachments"]) => (ListVnicAttachments, ""),
        ("GET", ["vnicAttachments", id]) => (GetVnicAttachment, *id),
        ("DELETE", ["vnicAttachments", id]) => (DetachVnic, *id),
        ("GET", ["vnics", id]) => (GetVnic, *id),
        ("PUT", ["vnics", id]) => (UpdateVnic, *id),
        ("POST", ["privateIps", "actions", "bulkCreatePrivateIps"] | ["ipv6", "actions", "bulkCreateIpv6s"]) => {
            (BulkCreateAddresses, "")
        }
        ("POST", ["privateIps", "actions", "bulkDeletePrivateIps"] | ["ipv6", "actions", "bulkDeleteIpv6s"]) => {
            (BulkDeleteAddresses, "")
        }
        ("POST", ["privateIps" | "ipv6"]) => (CreateAddress, ""),
        ("GET", ["privateIps" | "ipv6"]) => (ListAddresses, ""),
        ("GET", ["privateIps" | "ipv6", id]) => (GetAddress, *id),
        ("DELETE", ["privateIps" | "ipv6", id]) => (DeleteAddress, *id),
        _ => return None,
    };
    Some(Route { operation, id: id.to_owned(), family })
}

impl Operation {
    /// Whether a retry token means something to it.
    pub(super) const fn takes_retry_token(self) -> bool {
        matches!(self, Self::AttachVnic | Self::CreateAddress | Self::BulkCreateAddresses)
    }
}
