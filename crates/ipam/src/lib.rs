//! Which address a pod gets. Decisions are pure ([`Allocations::reserve`] and friends take the pools and the time);
//! [`Store`] applies them to files under one lock.
//!
//! ```text
//!   pools.json (agent writes) ──▶ Pools ─┐
//!                                        ├─▶ reserve ─▶ Allocation ─▶ commit … release ─▶ cooling ─▶ free
//!   allocations.json ──┐                 │      (tentative, expires)
//!     who holds what   ├──▶ Store ───────┘
//!   allocations/*.json ┘
//!     a record for each attachment
//! ```
//!
//! A verb reads the index, which is addresses only, and the one record that is its own: what others hold it need not
//! understand. All files live in the state directory on tmpfs and carry the boot id: what an earlier boot wrote is void,
//! because its pods are gone. The lock of the files is held over nothing but their update; verbs of one attachment wait for
//! each other ([`AttachmentLock`]).

mod allocations;
mod boot;
mod error;
mod file;
mod index;
mod pools;
mod records;
mod reserve;
mod store;

pub use allocations::{
    Allocation, Allocations, AssignedAddress, FreedAddress, InterfaceRecord, NetnsRecord, PodRecord,
};
pub use boot::{BootId, BootTime};
pub use error::{Error, Shortage};
pub use file::{AtomicFile, MAX_STATE_BYTES, create, read_named, read_state, set_aside, write_atomically};
pub use pools::{AttachOffer, FamilyPool, Pools, VnicPool};
pub use reserve::{COOLDOWN, Reservation, TENTATIVE_LIFETIME};
pub use store::{AttachmentLock, Store};
