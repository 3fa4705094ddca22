//! What tests and the demo run in a sandbox: the agent, a CNI runtime, probes, programs that a test writes.

mod agent;
mod executable;
mod npn;
mod probe;
mod runtime;
mod scheduling;

pub use agent::{Agent, publish_native_pod_network};
pub use executable::{copy_program, write_program};
pub use npn::NpnShape;
pub use probe::Outcome;
pub use runtime::{Attachment, Runtime};
pub use scheduling::kept_waiting;
