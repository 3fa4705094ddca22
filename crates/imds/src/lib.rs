//! The instance metadata service (IMDS), version 2: what this instance is and which VNICs it has, without credentials
//! and without the OCI API. Adapter for that one outside system.
//!
//! ```text
//!   169.254.169.254 ──HTTP──▶ Imds (deadline, retries, size limit) ──▶ document (JSON → vcn types)
//!                                       │ implements                        │
//!                                       ▼                                   ▼
//!                                   Metadata                    vcn::Instance, VnicList
//! ```
//!
//! It must never be queried by the CNI plugins (promise P1), and never through a proxy: the service refuses forwarded
//! requests, and a proxy would answer for another instance.

mod client;
mod document;
mod error;

use std::future::Future;

pub use client::{DEFAULT_BASE_URL, Imds, POLICY};
pub use error::Error;
use vcn::{Instance, Ocid, Vnic};

/// What can be read about the instance that we run on.
pub trait Metadata {
    /// The instance itself.
    ///
    /// # Errors
    /// [`Error`], after retries of transient failures.
    fn instance(&self) -> impl Future<Output = Result<Instance, Error>> + Send;

    /// Its VNICs, the primary one first, unless its entry is among the unusable ones. A VNIC just attached appears some seconds later.
    ///
    /// # Errors
    /// [`Error`], after retries of transient failures.
    fn vnics(&self) -> impl Future<Output = Result<VnicList, Error>> + Send;
}

/// The VNICs of this instance, as far as they can be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VnicList {
    /// Those that can be, in the service's order.
    pub vnics: Vec<Vnic>,
    /// The entries that cannot: a field is missing (the VNIC is being attached) or has an invalid value.
    pub unusable: Vec<UnusableVnic>,
    /// What cannot be used of those that can be.
    pub incomplete: Vec<IncompleteVnic>,
}

/// A part of an entry that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncompleteVnic {
    /// The OCID of the VNIC.
    pub id: Ocid,
    /// The family, the field and what is wrong with it.
    pub reason: String,
}

/// An entry of the list that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusableVnic {
    /// Its place in the list, from 0.
    pub place: usize,
    /// The VNIC, where it says so much.
    pub id: Option<Ocid>,
    /// The field and what is wrong with it.
    pub reason: String,
}

impl From<Vec<Vnic>> for VnicList {
    fn from(vnics: Vec<Vnic>) -> Self {
        Self { vnics, ..Self::default() }
    }
}
