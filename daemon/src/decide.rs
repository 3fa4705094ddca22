//! Decisions, all pure: from the facts of a node to its desired network and the addresses that pods may use.

pub mod desired;
pub mod devices;
pub mod exclusive;
pub mod host_address;
pub mod offers;
pub mod pools;
pub mod refused;
pub mod requests;
pub mod slots;
pub mod usage;
