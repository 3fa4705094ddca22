//! Which nodes each profile selects, which objects that requires, and which profile may use which VNIC name. Pure.

pub(crate) mod claims;
pub mod fate;
pub mod from_template;
mod matcher;
pub(crate) mod observed;
pub(crate) mod selection;
