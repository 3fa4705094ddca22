//! What is read before planning: OCI's view of an instance, the pod network of OKE, and the evidence that an instance is gone.

pub mod cache;
pub mod forgotten;
pub mod observed;
pub mod pod_network;
pub mod read;
