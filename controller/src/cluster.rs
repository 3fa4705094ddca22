//! The Kubernetes API server: clients, what the watches deliver, and events.

pub(crate) mod client;
pub(crate) mod creator;
pub mod events;
pub mod managed_fields;
pub mod node_condition;
pub(crate) mod object_writes;
pub(crate) mod oke_repair;
pub(crate) mod own_image;
pub(crate) mod replicas;
pub(crate) mod request;
pub(crate) mod stamp;
pub(crate) mod stop_switch;
pub mod store;
