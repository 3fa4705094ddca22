//! Requests and answers of every netlink family: sent and received within a deadline, and read attribute by attribute.

pub(crate) mod attributes;
pub(crate) mod generic;
pub(crate) mod subscription;
pub(crate) mod transport;
