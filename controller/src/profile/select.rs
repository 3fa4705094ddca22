//! Which nodes each profile selects, which objects that requires, and which profile may use which VNIC name. Pure.

pub mod claims;
pub mod from_template;
pub mod observed;
pub mod selection;
