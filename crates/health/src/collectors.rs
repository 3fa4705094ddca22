//! The collectors, a file each. A file exports its [`Kind`]; the list below is all that knows it.

mod block_devices;
mod cgroup;
mod clock;
mod cloud_agent;
mod conntrack;
mod disk;
mod fabric_manager;
pub(crate) mod hardware;
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

use crate::collector::Kind;
use crate::controller_signals::CONTROLLER_SIGNALS;
use crate::signal::{Area, Signal, Unit};

/// How many rules of the file are not valid; measured by the engine.
pub(crate) const INVALID_RULES: Signal = Signal {
    name: "invalid_rules",
    unit: Unit::Count,
    source: "the file HEALTH_RULES, and the controller's rules",
    why: "A rule that is not valid is left out, so its signal is judged by the shipped rule or by none.",
    remedy: "Correct the rule that the detail names in the key health-rules.json of the agent's ConfigMap, or of the controller's.",
};

/// All kinds of collectors.
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
