//! GPUs, RDMA ports, and what else of the machine breaks: what the kernel logs about devices, and what their files show.
//!
//! ```text
//!   kernel log ─▶ messages (pure: a message is a finding) ─▶ events (kept in a file) ─▶ one problem per device
//!   /sys/bus/pci ─▶ inventory, with the table of shapes ─▶ a collector per question
//! ```
//!
//! The collectors are in `collectors/hardware`.

pub mod dcgm;
pub mod device;
pub mod events;
pub(crate) mod inventory;
pub mod messages;
pub(crate) mod nvidia_driver;
pub mod pci;
pub mod shapes;
