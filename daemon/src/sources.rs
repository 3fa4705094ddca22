//! What the agent learns from outside its node: from the metadata service and the API server. Each answer is a [`source::Source`],
//! and a cached copy on disk serves an agent that starts while neither answers.

pub mod attachments;
pub mod backoff;
pub mod cached_copy;
pub mod container_runtime;
pub(crate) mod host_links;
pub mod instance_watch;
pub(crate) mod machine_copy;
pub mod node_facts;
pub mod npn;
pub mod object_watch;
pub mod oke_cni;
pub mod poller;
pub mod source;
pub(crate) mod subscription;
