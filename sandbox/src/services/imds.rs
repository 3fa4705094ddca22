//! The instance metadata service, version 2, as OCI documents it: documents from the inventory, one HTTP server
//! for all instances (the source address distinguishes them), and injected faults.

mod document;
mod request;

use vcn::Ocid;

pub(crate) use request::answer;

/// A fault of one node's metadata service, until it is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataFault {
    /// It answers with this status: 404, 429 and 500 occur in practice.
    Status(u16),
    /// It answers correctly, but leaves this VNIC out.
    Without(Ocid),
}
