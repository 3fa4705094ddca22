//! What can go wrong while a sandbox is built or used.

use thiserror::Error;
use vcn::Family;

/// The result of this library's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed operation.
#[derive(Debug, Error)]
pub enum Error {
    /// A system call, or a change of the kernel's network configuration, failed.
    #[error("cannot {operation}")]
    System {
        /// The operation and its subject.
        operation: String,
        /// The kernel's error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No node has that name.
    #[error("no node is named {0:?}")]
    NoNode(String),
    /// No subnet has that name.
    #[error("no subnet is named {0:?}")]
    NoSubnet(String),
    /// The node has no such VNIC.
    #[error("{node} has no VNIC {vnic}")]
    NoVnic {
        /// The node.
        node: String,
        /// The VNIC's OCID.
        vnic: String,
    },
    /// The subnet is full.
    #[error("subnet {subnet} has no {size} free {family} addresses in a row")]
    SubnetFull {
        /// The subnet.
        subnet: String,
        /// How many were wanted.
        size: u128,
        /// Of which family.
        family: Family,
    },
    /// The address is in use, or not in the subnet.
    #[error("subnet {subnet} has no free address {address}")]
    AddressTaken {
        /// The subnet.
        subnet: String,
        /// What was wanted.
        address: std::net::IpAddr,
    },
    /// The shape's limit.
    #[error("{node} has {limit} VNICs already, the most for its shape")]
    VnicLimit {
        /// The node.
        node: String,
        /// The limit.
        limit: u32,
    },
    /// Bare metal needs VLANs.
    #[error("{node} is a bare-metal node, which needs 802.1Q (VLAN) in this kernel")]
    NoVlan {
        /// The node.
        node: String,
    },
    /// The description contradicts itself.
    #[error("{0}")]
    Invalid(String),
    /// A closure or a thread of the sandbox panicked.
    #[error("{0} panicked")]
    Panicked(&'static str),
}

/// Names the operation that failed.
pub(crate) trait During<T> {
    /// Adds the operation to the error.
    fn during<S: Into<String>>(self, operation: impl FnOnce() -> S) -> Result<T>;
}

impl<T, E: Into<Box<dyn std::error::Error + Send + Sync>>> During<T> for std::result::Result<T, E> {
    fn during<S: Into<String>>(self, operation: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|source| Error::System { operation: operation().into(), source: source.into() })
    }
}
