//! The instance metadata service (IMDS), version 2: what this instance is and which VNICs it has, without credentials
//! and without the OCI API. Adapter for that one outside system.
//!
//! ```text
//!   169.254.169.254 ──HTTP──▶ Imds (deadline, retries, size limit) ──▶ document (JSON → vcn types)
//!                                       │ implements                        │
//!                                       ▼                                   ▼
//!                                   Metadata ◀──implements── FakeMetadata   vcn::Instance, Vec<vcn::Vnic>
//! ```
//!
//! It must never be asked by the CNI plugins (promise P1), and never through a proxy: the service refuses forwarded
//! requests, and a proxy would answer for another instance.

mod client;
mod document;
mod error;
mod fake;
mod policy;

use std::future::Future;

pub use client::{DEFAULT_BASE_URL, Imds};
pub use error::{Error, Failure};
pub use fake::FakeMetadata;
// Part of a policy.
pub use patience::Backoff;
pub use policy::Policy;
use vcn::{Instance, Vnic};

/// What can be asked about the instance that we run on.
pub trait Metadata {
    /// The instance itself.
    ///
    /// # Errors
    /// [`Error`]; ask [`Error::is_transient`] whether to try again soon.
    fn instance(&self) -> impl Future<Output = Result<Instance, Error>> + Send;

    /// Its VNICs, the primary one first; at least one. A VNIC just attached appears some seconds later.
    ///
    /// # Errors
    /// [`Error`]; ask [`Error::is_transient`] whether to try again soon.
    fn vnics(&self) -> impl Future<Output = Result<Vec<Vnic>, Error>> + Send;
}
