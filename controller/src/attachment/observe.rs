//! Everything that is read before planning: OCI's state of an instance and OKE's pod network.

pub mod cache;
pub mod observed;
pub mod pod_network;
pub mod read;
