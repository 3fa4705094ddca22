//! Hosts in namespaces for tests, without any emulation: the kernel is real, and so are the programs. What fails here panics,
//! as the test would.
//!
//! ```text
//!   vnics      a host with the links of VNICs, whose far ends are routers; what the agent would say of them
//!   namespace  scripts and pings in a namespace, and waiting for what the kernel does later
//!   plugin     a run of a plugin, as a runtime makes it, and its answer
//!   calls      the same under strace: which system calls it makes, and one of them failing or deadly
//!   dump       all there is on a host, as other programs show it
//!   recorded   trees of nodes with accelerators, from compact descriptions
//! ```

#![expect(clippy::unwrap_used, reason = "it runs in tests, which may fail by panicking")]

mod calls;
mod dump;
mod namespace;
mod plugin;
mod recorded;
mod vnics;

pub use calls::{Call, Fault, Traced, sample};
pub use dump::{differences, foreign_lines, settings, text_of};
pub use namespace::{PATIENCE, before_next_look, ip, name, path_of, pings, reaches, reaches_from, sh, within};
pub use plugin::{assert_success, error_of, json_of, spawn};
pub use recorded::write_accelerators;
pub use vnics::{Families, VnicHost, no_detection, vnic_pool};
