//! From method and path to the operation as Oracle names it.

use hyper::Method;
use vcn::Family;

use super::message::Request;
use crate::error::{Error, Result};

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// An operation of the API.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Operation {
            $($(#[$doc])* $name,)*
        }

        impl Operation {
            pub(in crate::oci) const ALL: &[Self] = &[$(Self::$name,)*];

            /// Oracle's name of it, but for addresses, whose operations Oracle names by family.
            pub(in crate::oci) const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }
        }
    };
}

operations! {
    /// `GET /instances/{id}`
    GetInstance,
    /// `POST /instances/{id}`
    InstanceAction,
    /// `GET /instanceagents/{id}/plugins`
    ListInstanceAgentPlugins,
    /// `GET /computeHosts`
    ListComputeHosts,
    /// `GET /instanceMaintenanceEvents`
    ListInstanceMaintenanceEvents,
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
    /// `POST /v1/x509` of the federation service
    Federate,
    /// `POST /resourcePrincipalSessionTokens` of proxymux
    WorkloadToken,
}

/// An operation and its subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::oci) struct Route {
    pub(in crate::oci) operation: Operation,
    /// The OCID in the path.
    pub(in crate::oci) id: String,
    pub(in crate::oci) family: Family,
}

impl Route {
    /// The OCID that a request is about: the path's, else that of the instance, VNIC or compartment it names.
    pub(in crate::oci) fn subject(&self, request: &Request) -> String {
        if !self.id.is_empty() {
            return self.id.clone();
        }
        let body = request.json().unwrap_or_default();
        let names = ["vnicId", "instanceId", "compartmentId"];
        let found = names.iter().find_map(|name| request.query(name).or_else(|| body.get(*name)?.as_str()));
        found.unwrap_or_default().to_owned()
    }
}

pub(in crate::oci) fn route(method: &Method, path: &str) -> Option<Route> {
    use Operation::*;
    let verb = method.as_str();
    if let Some(path) = path.strip_prefix("/20180530/") {
        let id = path.strip_prefix("instanceagents/")?.strip_suffix("/plugins").filter(|_| verb == "GET")?;
        return Some(Route { operation: ListInstanceAgentPlugins, id: id.to_owned(), family: Family::Ipv4 });
    }
    let parts: Vec<&str> = path.strip_prefix("/20160918/")?.split('/').collect();
    let family = if parts.first() == Some(&"ipv6") { Family::Ipv6 } else { Family::Ipv4 };
    let (operation, id) = match (verb, parts.as_slice()) {
        ("GET", ["instances", id]) => (GetInstance, *id),
        ("POST", ["instances", id]) => (InstanceAction, *id),
        ("GET", ["computeHosts"]) => (ListComputeHosts, ""),
        ("GET", ["instanceMaintenanceEvents"]) => (ListInstanceMaintenanceEvents, ""),
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
        ("POST", ["privateIps" | "ipv6"]) => (CreateAddress, ""),
        ("GET", ["privateIps" | "ipv6"]) => (ListAddresses, ""),
        ("GET", ["privateIps" | "ipv6", id]) => (GetAddress, *id),
        ("DELETE", ["privateIps" | "ipv6", id]) => (DeleteAddress, *id),
        _ => return None,
    };
    Some(Route { operation, id: id.to_owned(), family })
}

impl std::str::FromStr for Operation {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.iter().copied().find(|operation| operation.name() == name).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|operation| operation.name()).collect();
            Error::Invalid(format!("{name} is not an operation of the emulated API: {}", names.join(", ")))
        })
    }
}

impl Operation {
    /// Whether it uses a retry token.
    pub(super) const fn takes_retry_token(self) -> bool {
        matches!(self, Self::AttachVnic | Self::CreateAddress | Self::BulkCreateAddresses | Self::InstanceAction)
    }
}
