//! The collectors, a file each. A file exports its [`Kind`]; the list below is all that knows it.

mod block_devices;
mod cgroup;
mod clock;
mod cloud_agent;
mod conntrack;
mod disk;
mod fabric_manager;
mod hpc_plugins;
mod identity;
mod kernel_log;
mod kernel_table;
mod kubelet;
mod limits;
mod link_settings;
mod links;
mod memory;
mod metadata;
mod neighbours;
mod pools;
mod reserved;
mod root_disk;
mod softnet;
mod tcp;
mod units;
mod versions;
mod vnics;

use std::time::Duration;

pub use hpc_plugins::has_rdma_network;

use crate::collector::{Area, Kind, Signal};
use crate::fleet::CONTROLLER_SIGNALS;
use crate::hardware;
use crate::rules::INVALID_RULES;

pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const FIVE_MINUTES: Duration = Duration::from_secs(300);

/// What needs nothing but the container's own /proc and /sys, which show the host's network and kernel.
pub(crate) const NOTHING: &str = "nothing";

/// What the agent knows anyway.
const AGENT: &str = "nothing: the agent's own report";

/// The mount of the host's cgroups.
const CGROUPS: &str = "`/sys/fs/cgroup`, read-only";

/// All of them.
pub const KINDS: &[Kind] = &[
    vnics::KIND,
    pools::KIND,
    links::CARRIER,
    links::KIND,
    link_settings::KIND,
    conntrack::KIND,
    neighbours::KIND,
    softnet::KIND,
    tcp::KIND,
    identity::KIND,
    metadata::KIND,
    clock::KIND,
    limits::KIND,
    memory::KIND,
    disk::KIND,
    root_disk::KIND,
    kernel_log::KIND,
    kubelet::KIND,
    units::KIND,
    reserved::KIND,
    cloud_agent::KIND,
    hpc_plugins::KIND,
    hardware::message_faults::HOST,
    hardware::memory_errors::KIND,
    hardware::local_disks::KIND,
    hardware::message_faults::ACCELERATORS,
    hardware::gpus::KIND,
    hardware::gpu_driver::KIND,
    hardware::amd_memory::KIND,
    hardware::pcie_errors::KIND,
    hardware::rdma_ports::KIND,
    hardware::rdma_counters::KIND,
    hardware::adapter_health::KIND,
    hardware::governor::KIND,
    hardware::dcgm::KIND,
    fabric_manager::KIND,
    versions::KIND,
];

/// All signals that an agent measures.
pub fn signals() -> impl Iterator<Item = &'static Signal> {
    KINDS.iter().flat_map(|kind| kind.signals).chain([&INVALID_RULES])
}

/// Those, and the controller's.
pub fn all_signals() -> impl Iterator<Item = &'static Signal> {
    signals().chain(CONTROLLER_SIGNALS.iter().map(|(signal, _)| signal))
}

/// The signal of a name.
pub fn signal(name: &str) -> Option<&'static Signal> {
    all_signals().find(|signal| signal.name == name)
}

/// What a signal is about.
pub fn area(signal: &str) -> Area {
    let kind = KINDS.iter().find(|kind| kind.signals.iter().any(|one| one.name == signal));
    kind.map_or(Area::Host, |kind| kind.area)
}
