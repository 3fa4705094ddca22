//! Decisions, all pure: from what is known about the node to the network it must have and the addresses pods may use.

pub mod desired;
pub mod devices;
pub mod host_address;
pub mod pools;
pub mod refused;
pub mod slots;
pub mod usage;
