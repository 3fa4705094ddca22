//! The instance metadata service, version 2, as OCI documents it: documents from the inventory, one HTTP server
//! for all instances (the source address distinguishes them), and injected faults.

mod document;
mod fault;
mod request;

pub use fault::{Fault, FaultKind};

pub(crate) use request::answer;
