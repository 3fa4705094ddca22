//! The vocabulary spoken with the Kubernetes API: objects other programs write and we read, and, later, our own custom
//! resources, annotations and the agent protocol. Floor 0: parsing only, no client, no clock.
//!
//! ```text
//!   OKE control plane ──writes──▶ NativePodNetwork (JSON) ──NativePodNetwork::parse──▶ addresses that pods may use
//! ```

mod field;
pub mod npn;

pub use field::{Field, FieldError};
pub use npn::NativePodNetwork;
