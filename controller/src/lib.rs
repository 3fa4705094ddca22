//! The controller manager: makes OCI have the VNICs that custom resources and annotations ask for.

pub mod events;
pub mod node;
pub mod profile;
