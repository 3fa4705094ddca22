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
mod budget;
mod calls;
mod client;
mod cloud;
mod endpoint;
mod error;
mod instance;
mod key;
mod observer;
mod policy;
mod region;
mod request_id;
mod retry;
mod retry_token;
mod sign;
mod subnet;
mod tagged;
mod transport;
mod vnic;

pub use address::{AddressState, CreateAddress, CreateAddresses, IpObject, Lifetime, WorkRequest};
pub use attachment::{AttachVnic, AttachmentState, CreateVnic, Ipv6Choice, VnicAttachment};
pub use auth::{ApiKey, InstancePrincipal, Login, WorkloadIdentity};
pub use budget::{Budget, Rates, Standing};
pub use client::{Oci, Options};
pub use cloud::{Cloud, CloudView};
pub use endpoint::{Endpoint, MetadataUrl};
pub use error::{Error, Failure, Kind, LoginError, Refusal};
pub use instance::{Instance, InstanceState, Shape, ShapeConfig, VnicLimits};
pub use observer::{Attempt, Observer};
// Part of a policy.
pub use patience::Backoff;
pub use policy::Policy;
pub use region::{Endpoints, RealmDomain, Region, RegionName};
pub use request_id::RequestId;
pub use retry::{Decision, Repeat, Situation, decide};
pub use retry_token::RetryToken;
pub use subnet::Subnet;
pub use tagged::{DefinedTags, Etag, FreeformTags, Tagged};
pub use transport::{Carrier, Trust};
pub use vnic::{UpdateVnic, Vnic, VnicState};

/// Where an instance finds its metadata service.
pub use auth::METADATA_URL;
