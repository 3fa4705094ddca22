//! GPUs, RDMA ports, and what else of the machine breaks: what the kernel logs about devices, and what their files show.
//!
//! ```text
//!   kernel log ─▶ messages (pure: a message is a finding) ─▶ events (kept in a file) ─▶ one problem per device
//!   /sys/bus/pci ─▶ inventory, with the table of shapes ─▶ a collector per question
//! ```
//!
//! Nothing here makes a device worse by reading: the configuration space only of devices that are awake, counters only of
//! functions on the shape's list.

pub mod dcgm;
pub mod device;
pub mod events;
pub(crate) mod inventory;
pub mod messages;
pub mod pci;
pub mod shapes;

pub(crate) mod adapter_health;
pub(crate) mod amd_memory;
pub(crate) mod governor;
pub(crate) mod gpu_driver;
pub(crate) mod gpus;
pub(crate) mod local_disks;
pub(crate) mod memory_errors;
pub(crate) mod message_faults;
pub(crate) mod nvidia_driver;
pub(crate) mod pcie_errors;
pub(crate) mod rdma_counters;
pub(crate) mod rdma_ports;
