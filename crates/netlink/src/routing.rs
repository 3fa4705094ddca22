//! The routing socket (NETLINK_ROUTE), with a module for each noun, and the monitor of changes.

pub(crate) mod address;
#[cfg(test)]
mod decoding_tests;
pub(crate) mod link;
pub(crate) mod monitor;
pub(crate) mod neighbour;
pub(crate) mod route;
pub(crate) mod rule;
pub(crate) mod saved;
pub(crate) mod socket;
