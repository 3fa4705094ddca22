//! What a pod's or a host's network must be, and the steps that make it so. Plugins and the agent share it.
//!
//! ```text
//!   pod::desired ──┐                        ┌─▶ printed (plan, CHECK, logs)
//!   host::desired ─┤                        │
//!                  ├─▶ plan() ─▶ [Step] ────┼─▶ apply ─▶ kernel
//!   observe ───────┘   (pure)               └─▶ undo, on failure
//! ```
//!
//! ADD applies plan(desired, observed); CHECK demands that it is empty; DEL and GC apply plan(nothing, observed); the
//! host is repaired by the same. Nothing here decides *which* address or VNIC: that is `ipam`'s and the agent's.

mod apply;
mod error;
pub mod host;
mod object;
mod places;
mod plan;
pub mod pod;
pub mod pods;
pub mod route_check;
mod snapshot;

pub use apply::{apply, dismantle};
pub use error::{Error, Failure};
pub use object::{AddressSpec, LinkKind, LinkSpec, NeighbourSpec, NftTables, Object, RouteSpec, SysctlSpec, VethPeer};
pub use places::{Place, Places};
pub use plan::{Change, Step, plan};
pub use snapshot::Snapshot;
