//! Everything that is read before planning: OCI's state of an instance, OKE's pod network, and the evidence that an instance
//! is gone.

pub mod cache;
pub mod forgotten;
pub mod observed;
pub mod pod_network;
pub mod read;
