//! Where the agent learns about its node: the metadata service, the API server, and the copies it keeps on disk for a
//! start while neither answers.

pub mod backoff;
pub mod container_runtime;
pub mod facts;
pub mod npn;
pub mod oke_cni;
pub mod poller;
pub(crate) mod routers;
pub(crate) mod subscription;
pub mod vnic_cache;
