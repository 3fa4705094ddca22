//! What can go wrong while a sandbox is built or used.

use std::net::IpAddr;

use thiserror::Error;
use vcn::{Family, Ocid};

/// The result of this library's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed operation of the sandbox.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each variant's message says it")]
pub enum Error {
    #[error("cannot {operation}")]
    System {
        operation: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("no node is named {0:?}")]
    NoNode(String),
    #[error("{node} has no VNIC {vnic}")]
    NoVnic { node: String, vnic: Ocid },
    #[error("subnet {subnet} has no {size} free {family} addresses in a row")]
    SubnetFull { subnet: String, size: u128, family: Family },
    #[error("subnet {subnet} has no free address {address}")]
    AddressTaken { subnet: String, address: IpAddr },
    #[error("{node} has {limit} VNICs already, the most for its shape")]
    VnicLimit { node: String, limit: u32 },
    #[error("{0}")]
    Invalid(String),
    #[error("{0} panicked")]
    Panicked(&'static str),
}

/// Names the operation that failed.
pub(crate) trait ErrorContext<T> {
    /// Adds the operation to the error.
    fn during<S: Into<String>>(self, operation: impl FnOnce() -> S) -> Result<T>;
}

impl<T, E: Into<Box<dyn std::error::Error + Send + Sync>>> ErrorContext<T> for std::result::Result<T, E> {
    fn during<S: Into<String>>(self, operation: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|source| Error::System { operation: operation().into(), source: source.into() })
    }
}
