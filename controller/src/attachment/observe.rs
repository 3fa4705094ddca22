//! Everything that is read before planning: OCI's state of an instance and OKE's pod network.

pub(crate) mod cache;
pub(crate) mod observed;
pub mod pod_network;
pub(crate) mod read;
