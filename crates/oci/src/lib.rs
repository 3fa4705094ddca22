//! The client of the OCI API, as far as VNICs need it: VNICs on instances, their addresses, subnets and shapes. It also reads the
//! states of plugins of the Oracle Cloud Agent, and restarts instances.
//!
//! ```text
//!   Cloud, CloudView (traits) ─▶ client ─▶ budget ─▶ auth ─▶ transport ─▶ iaas.<region>.<realm>
//!     address, attachment,          ▲     (shared,  (sign)       │        (region)
//!     instance, subnet, vnic        │      learns)               │
//!                                   └─── retry: stop, back off, renew the login ◀── status, code, Retry-After (error)
//! ```
//!
//! Every call has a deadline, every list is read to its last page, every error has the request's number and a [`Kind`].
//! Creates take a [`RetryToken`] that the caller derives from stable facts, so that a controller that crashed after sending
//! does not create an object twice. A [`Carrier`] takes the place of the network in tests.
//!
//! The client decides nothing about VNICs: which to attach, and what a 404 proves, is up to the controller.

mod address;
mod agent_plugin;
mod attachment;
mod auth;
mod client;
mod cloud;
mod error;
mod host;
mod instance;
mod object;
mod refusal;
mod region;
mod request_id;
mod retry_token;
mod subnet;
mod transport;
mod vnic;

pub use address::{CreateAddress, CreateAddresses, IpObject, WorkRequest};
pub use agent_plugin::{AgentConfig, AgentPlugin, PluginConfig};
pub use attachment::{AttachVnic, AttachmentState, CreateVnic, Ipv6Choice, VnicAttachment};
pub use auth::{ApiKey, InstancePrincipal, KeyOwner, Login, WorkloadIdentity};
pub use client::{Attempt, Budget, BudgetState, CloudView, Observer, Oci, Options, POLICY, Rates};
pub use error::{Error, Failure, Kind, LoginError, Refusal};
pub use host::{ComputeHost, MaintenanceEvent};
pub use instance::{Instance, InstanceState, Shape, ShapeConfig, VnicLimits};
pub use object::{Etag, FreeformTags, VersionedObject};
pub use region::endpoint::{Endpoint, MetadataUrl};
pub use region::{Endpoints, RealmDomain, Region, RegionName};
pub use request_id::RequestId;
pub use retry_token::RetryToken;
pub use subnet::Subnet;
pub use transport::{Carrier, Trust};
pub use vnic::{UpdateVnic, Vnic, VnicState};

/// The metadata service of an instance.
pub use auth::METADATA_URL;
