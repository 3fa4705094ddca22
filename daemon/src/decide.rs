//! Decisions, all pure: from the facts of a node to its desired network and the addresses that pods may use.

pub(crate) mod desired;
pub(crate) mod devices;
pub(crate) mod exclusive;
pub(crate) mod host_address;
pub(crate) mod host_facts;
pub(crate) mod host_routes;
pub(crate) mod new_vnics;
pub(crate) mod offers;
pub(crate) mod pods;
pub(crate) mod pools;
pub(crate) mod requests;
pub(crate) mod slots;
pub(crate) mod usage;
