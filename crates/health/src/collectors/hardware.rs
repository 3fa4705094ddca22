//! Collectors of GPUs, RDMA ports, and what else of the machine breaks: what the kernel logged about devices, and what their files
//! show. They make no device worse by reading: the configuration space only of devices that are awake, counters only of
//! functions on the shape's list.

pub(crate) mod adapter_health;
pub(crate) mod amd_memory;
pub(crate) mod dcgm;
pub(crate) mod governor;
pub(crate) mod gpu_driver;
pub(crate) mod gpus;
pub(crate) mod local_disks;
pub(crate) mod memory_errors;
pub(crate) mod message_faults;
pub(crate) mod pcie_errors;
pub(crate) mod rdma_counters;
pub(crate) mod rdma_ports;
