//! `NativePodNetwork` (`oci.oraclecloud.com/v1beta1`, cluster-scoped, one per node) as we read it: which VNICs and
//! addresses OKE prepared for this node's pods. OKE writes it; we never do.
//!
//! Two shapes are in the field, and a VNIC may mix them. The legacy one is IPv4 only: `routerIp`, `subnetCidr`,
//! `hostAddress`, `addresses`. The one per family has lists of `{v4, v6}`: `routerIps`, `subnetCidrs`, `hostAddresses`,
//! `podAddresses`. Per family the newer one wins. A pod address is one address or, with generic VNIC attachment, a
//! whole CIDR block. Fields that we do not know are ignored.

mod read;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use kube::core::{ApiResource, GroupVersionKind};
use thiserror::Error;
use vcn::{Field, FieldError, MacAddr, Ocid, PerFamily};

/// The most VNICs in one document. An instance has 256 at most (bare metal); Application Resource mode takes 64.
pub const MAX_VNICS: usize = 256;

/// The most addresses and CIDR blocks for pods in one document, both families together. OKE makes 110 addresses per family
/// (`maxPodCount`), or one block per VNIC and family.
pub const MAX_POD_ADDRESSES: usize = 4096;

/// One node's native pod network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativePodNetwork {
    /// The object's name: the last part of the instance's OCID. Absent if the document has no metadata.
    pub name: Option<String>,
    /// The instance that it is for (`spec.id`).
    pub instance: Ocid,
    /// How far OKE got.
    pub state: NpnState,
    /// `COMPLETED`, `IN_PROGRESS` or a failure word such as `FailedToCreatePrivateIP`.
    pub reason: Option<String>,
    /// The VNICs for pods. In any other state than success an entry that is not complete is left out.
    pub vnics: Vec<NpnVnic>,
    /// The VNICs of the entries that are left out, as far as those name one.
    pub unfinished: Vec<Ocid>,
}

/// How far OKE got with a node's pod network (`status.state`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NpnState {
    /// OKE has not reported a state yet.
    Unreported,
    /// VNICs and addresses are being made.
    InProgress,
    /// OKE reports `SUCCESS`: all VNICs and addresses are there.
    Success,
    /// The last try failed, OKE will try again; the reason says what.
    Backoff,
    /// A word that this version does not know. Treated as "not yet".
    Unknown(String),
}

/// Where the API server serves them. The plural is said, for it cannot be discovered where the kind is not served.
pub fn resource() -> ApiResource {
    let kind = GroupVersionKind::gvk("oci.oraclecloud.com", "v1beta1", "NativePodNetwork");
    ApiResource::from_gvk_with_plural(&kind, "nativepodnetworks")
}

/// One VNIC for pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NpnVnic {
    /// The OCID of the VNIC (`vnicId`).
    pub vnic_id: Ocid,
    /// The VNIC's Ethernet address (`macAddress`).
    pub mac: MacAddr,
    /// Router, subnet and addresses, per family; a family that nothing is said about is absent.
    pub addressing: PerFamily<NpnAddressing>,
    /// The application resources that the VNIC is kept for (`nicConfiguration.applicationResources`); where there is
    /// one, the addresses are not for pods in general.
    pub application_resources: Vec<String>,
}

/// One family of a VNIC for pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NpnAddressing {
    /// The address of the subnet's virtual router, if the document names one.
    pub router: Option<IpAddr>,
    /// The subnet's CIDR block, the first one where it has several.
    pub subnet: Option<IpNetwork>,
    /// All CIDR blocks of the subnet, from the list (`subnetCidrs`). Empty where the document has no such list: the legacy
    /// field has room for one block only.
    pub subnets: Vec<IpNetwork>,
    /// The host's own address on this VNIC: never a pod's.
    pub host: Option<IpAddr>,
    /// Addresses for pods: single ones as /32 or /128, or CIDR blocks. The host's address may lie inside a block.
    pub pods: Vec<IpNetwork>,
}

/// Why a document is not a NativePodNetwork.
#[derive(Debug, Error)]
pub enum NpnError {
    /// The document is not JSON.
    #[error("reading a NativePodNetwork of {length} bytes as JSON")]
    NotJson {
        /// The document's length in bytes.
        length: usize,
        /// What the JSON parser reported.
        #[source]
        source: serde_json::Error,
    },
    /// A field is missing or holds something else than it should.
    #[error("reading the NativePodNetwork {name:?}")]
    Field {
        /// The object's name, as far as it is known.
        name: String,
        /// The field, its value and what was expected.
        #[source]
        source: FieldError,
    },
}

impl NativePodNetwork {
    /// Reads the JSON document that the API server serves.
    ///
    /// # Errors
    /// When it is not JSON, not a NativePodNetwork, or a field that we read has a wrong type or value.
    pub fn parse(document: &[u8]) -> Result<Self, NpnError> {
        let value: serde_json::Value =
            serde_json::from_slice(document).map_err(|source| NpnError::NotJson { length: document.len(), source })?;
        read::network(&Field::root(&value)).map_err(|source| {
            let name = value.pointer("/metadata/name").and_then(serde_json::Value::as_str).unwrap_or_default();
            NpnError::Field { name: name.to_owned(), source }
        })
    }

    /// Whether it names this VNIC: its addresses are for pods, or will be.
    pub fn names(&self, vnic: &Ocid) -> bool {
        self.vnics.iter().any(|entry| entry.vnic_id == *vnic) || self.unfinished.contains(vnic)
    }

    /// Whether pods can get addresses from it: OKE is done and there is at least one VNIC.
    pub fn usable(&self) -> bool {
        self.state == NpnState::Success && !self.vnics.is_empty()
    }
}

impl NpnVnic {
    /// Whether its addresses are for pods in general, not kept for an application resource.
    pub const fn serves_all_pods(&self) -> bool {
        self.application_resources.is_empty()
    }
}

impl fmt::Display for NpnState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreported => "unreported",
            Self::InProgress => "IN_PROGRESS",
            Self::Success => "SUCCESS",
            Self::Backoff => "BACKOFF",
            Self::Unknown(word) => word,
        })
    }
}
