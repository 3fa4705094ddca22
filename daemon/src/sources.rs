//! What the agent learns from outside its node: from the metadata service and the API server. Each answer is a
//! [`Source`](crate::facts::source::Source), and a cached copy on disk serves an agent that starts while neither answers.

pub(crate) mod attachments;
pub(crate) mod backoff;
pub(crate) mod cached_copy;
pub(crate) mod container_runtime;
pub(crate) mod host_links;
pub(crate) mod host_units;
pub(crate) mod instance_watch;
pub(crate) mod machine_copy;
pub(crate) mod npn;
pub(crate) mod object_watch;
pub(crate) mod oke_cni;
pub mod poller;
pub(crate) mod subscription;
