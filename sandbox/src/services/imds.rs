//! The instance metadata service, version 2, as OCI documents it: documents made from the inventory, one HTTP server
//! for all instances (the source address tells them apart), and faults on demand.

mod document;
mod fault;
mod request;

pub use fault::{Fault, FaultKind};

pub(crate) use request::answer;
