//! The OCI API, as far as VNICs need it: VNICs on instances, their addresses, subnets, shapes. Adapter for that one
//! outside system.
//!
//! ```text
//!   CloudView, Cloud (traits)
//!                  ▲ implements
//!   calls ──▶     Oci ──▶ Budget ──▶ Login ──▶ sign ──▶ Transport ──▶ iaas.<region>.<realm>,
//!                  ▲      (shared,   (who?)                 │
//!                  │      learns)                           │
//!                  └───────── retry: stop, wait, renew the login ◀── status, code, Retry-After
//! ```
//!
//! Every call has a deadline, every list is read to its last page, every error has the request's number and answers what
//! kind it is ([`Error::kind`]). Creates take a [`RetryToken`] that the caller derives from what it knows for certain, so
//! that a controller that crashed after sending does not do a thing twice.
//!
//! It decides nothing about VNICs: which to attach, and what a 404 proves, is the controller's.

mod address;
mod attachment;
mod auth;
mod client;
mod cloud;
mod error;
mod instance;
mod region;
mod retry_token;
mod subnet;
mod tagged;
mod vnic;

pub use address::{AddressState, CreateAddress, CreateAddresses, IpObject, Lifetime, WorkRequest};
pub use attachment::{AttachVnic, AttachmentState, CreateVnic, Ipv6Choice, VnicAttachment};
pub use auth::{ApiKey, InstancePrincipal, Login, WorkloadIdentity};
pub use client::request_id::RequestId;
pub use client::transport::{Carrier, Trust};
pub use client::{
    Attempt, Budget, Decision, Observer, Oci, Options, Policy, Rates, Repeat, Situation, Standing, decide,
};
pub use cloud::{Cloud, CloudView};
pub use error::{Error, Failure, Kind, LoginError, Refusal};
pub use instance::{Instance, InstanceState, Shape, ShapeConfig, VnicLimits};
// Part of a policy.
pub use patience::Backoff;
pub use region::endpoint::{Endpoint, MetadataUrl};
pub use region::{Endpoints, RealmDomain, Region, RegionName};
pub use retry_token::RetryToken;
pub use subnet::Subnet;
pub use tagged::{DefinedTags, Etag, FreeformTags, Tagged};
pub use vnic::{UpdateVnic, Vnic, VnicState};

/// Where an instance finds its metadata service.
pub use auth::METADATA_URL;
