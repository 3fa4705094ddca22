//! Devices that the kernel reports as broken. Disks are the matter of `kernel_io_errors`.

use std::io;

use crate::collector::{Kind, MINUTE, Sample};
use crate::hardware::device::{Device, FaultyDevice, millis};
use crate::hardware::events::file::{EVENTS_FILE, HOST_EVENTS_FILE};
use crate::hardware::events::{Events, Problem};
use crate::hardware::inventory::{Inventory, parent};
use crate::hardware::messages::{Advice, FaultLevel, Subsystem};
use crate::hardware::pci::PciAddress;
use crate::host::Host;
use crate::kernel_log::records;
use crate::signal::{Area, Gap, Signal, Unit};
use crate::verdict::NotMeasured;

const SOURCE: &str = "the kernel's log, by syslog(2)";

const PRIVILEGE: &str =
    "the capability `SYSLOG`, which is optional (the chart's `agent.kernelLog`): without it not applicable";

/// Why nothing is read.
pub(crate) const NOT_GRANTED: &str = "kernel messages are not read: set agent.kernelLog";

/// What is known of this boot's messages.
struct Known {
    events: Events,
    /// Why the agent no longer reads them.
    not_measured: Option<NotMeasured>,
    /// When the machine booted, in milliseconds since 1970; read only if there is an event.
    booted: Option<u64>,
}

pub(crate) const ACCELERATORS: Kind = Kind {
    area: Area::Accelerators,
    name: "accelerator_messages",
    every: MINUTE,
    privilege: PRIVILEGE,
    collect: collect_accelerators,
    signals: &[
        Signal {
            name: "gpus_need_replacement",
            unit: Unit::Count,
            source: SOURCE,
            why: "The kernel reports a GPU that neither a reset nor a reboot repairs.",
            remedy: "Drain the node, report the host to Oracle and replace the node.",
        },
        Signal {
            name: "gpus_need_reboot",
            unit: Unit::Count,
            source: SOURCE,
            why: "A GPU or NVSwitch does not work until the node is rebooted.",
            remedy: "Drain the node, reboot it and uncordon it; if it happens again, report the host to Oracle.",
        },
        Signal {
            name: "gpus_need_reset",
            unit: Unit::Count,
            source: SOURCE,
            why: "A GPU does not work until it is reset.",
            remedy: "End the GPU's jobs and reset it, for example with `nvidia-smi --gpu-reset`, or reboot the node.",
        },
        Signal {
            name: "gpu_warnings",
            unit: Unit::Count,
            source: SOURCE,
            why: "A GPU works, but lost a program's data or will need a reset.",
            remedy: "Follow the detail, which names what each needs; without it, watch the GPU.",
        },
        Signal {
            name: "rdma_adapters_failed",
            unit: Unit::Count,
            source: SOURCE,
            why: "A network adapter of the RDMA network does not work until the node is rebooted.",
            remedy: "Drain the node, reboot it and uncordon it; if it happens again, report the host to Oracle.",
        },
        Signal {
            name: "rdma_adapter_warnings",
            unit: Unit::Count,
            source: SOURCE,
            why: "A port of the RDMA network lost its link, is hot, or is slower than it should be.",
            remedy: "Compare with other nodes: ports of one switch fail together. If it is this node only, report the host to Oracle.",
        },
    ],
};

pub(crate) const HOST: Kind = Kind {
    area: Area::Host,
    name: "hardware_messages",
    every: MINUTE,
    privilege: PRIVILEGE,
    collect: collect_host,
    signals: &[
        Signal {
            name: "hardware_failed",
            unit: Unit::Count,
            source: SOURCE,
            why: "The kernel reports memory, a processor, the bus or a network adapter that does not work.",
            remedy: "Drain the node, reboot it and uncordon it; if the detail says so or it happens again, report the host to Oracle and replace the node.",
        },
        Signal {
            name: "hardware_warnings",
            unit: Unit::Count,
            source: SOURCE,
            why: "The kernel reports errors of the hardware that it could handle.",
            remedy: "Watch the node; if it happens again, report the host to Oracle.",
        },
    ],
};

/// Whether a signal is measured by kernel messages about accelerators.
pub(crate) fn is_of_messages(signal: &str) -> bool {
    ACCELERATORS.signals.iter().any(|one| one.name == signal)
}

fn collect_accelerators(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    let found = Inventory::of(host, &mut sample.memory.functions)?;
    let known = collect(host, sample, &ACCELERATORS, |problem| accelerator_signal(host, &found, problem))?;
    for address in found.addresses().iter().map(ToString::to_string) {
        let of_it = known.events.all().iter().filter(|event| event.device == address);
        if let Some(event) = of_it.max_by(|a, b| a.last.total_cmp(&b.last)) {
            let last_event_unix_millis = known.booted.map(|booted| booted + millis(event.last));
            let last_event = Some(event.describe());
            sample.sees(Device { address, last_event, last_event_unix_millis, ..Device::default() });
        }
    }
    sample.memory.events = Some(known.events);
    Ok(())
}

fn collect_host(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    let found = Inventory::of(host, &mut sample.memory.functions).unwrap_or_default();
    let known = collect(host, sample, &HOST, |problem| host_signal(host, &found, problem))?;
    sample.memory.events = Some(known.events);
    Ok(())
}

/// Counts the problems of each signal, with their devices. Problems of this boot that were read before outlive the right to read.
fn collect(
    host: &Host,
    sample: &mut Sample,
    kind: &Kind,
    signal: impl Fn(&Problem) -> Option<&'static str>,
) -> Result<Known, Gap> {
    let known = read_events(host, sample, if kind.area == Area::Host { HOST_EVENTS_FILE } else { EVENTS_FILE })?;
    let problems = known.events.problems();
    for Signal { name, .. } in kind.signals {
        let of_it: Vec<&Problem> = problems.iter().filter(|problem| signal(problem) == Some(*name)).collect();
        if of_it.is_empty() && known.not_measured.is_some() {
            sample.gap(name, Gap::absent(NOT_GRANTED));
            continue;
        }
        let lines: Vec<String> = of_it.iter().map(|problem| problem.describe(known.events.newest())).collect();
        let devices = of_it.iter().map(|problem| FaultyDevice::of_problem(problem, known.booted)).collect();
        sample.faulty_with(name, of_it.len() as f64, lines.join("; "), devices);
        if let Some(gap) = &known.not_measured {
            sample.outdate(name, gap.clone());
        }
    }
    Ok(known)
}

/// The events of this boot with what is new in the log, kept in the agent's folder.
fn read_events(host: &Host, sample: &mut Sample, file: &str) -> Result<Known, Gap> {
    let log = match host.system.kernel_log() {
        Ok(log) => Some(log),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
        Err(error) => return Err(Gap::unknown(format!("read the kernel's log: {error}"))),
    };
    let records = log.as_deref().map(records).unwrap_or_default();
    if !records.is_empty() && records.iter().all(|record| record.at.is_none()) {
        return Err(Gap::unknown("the kernel's log has no times: set the kernel parameter printk.time=1"));
    }
    let boot_id = host.proc("sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned();
    let path = host.facts.state_dir.as_ref().filter(|_| !boot_id.is_empty()).map(|folder| folder.join(file));
    let load = || path.as_ref().map_or_else(|| Events::of_boot(&boot_id), |path| Events::load(path, &boot_id));
    let before = sample.memory.events.take().unwrap_or_else(load);
    let mut events = before.clone();
    if log.is_none() {
        if events.problems().is_empty() {
            return Err(Gap::absent(NOT_GRANTED));
        }
        let booted = booted(host, &events);
        let since_unix_millis = booted.map_or(0, |booted| booted + millis(events.newest()));
        let not_measured = Some(NotMeasured { since_unix_millis, reason: NOT_GRANTED.to_owned() });
        return Ok(Known { events, not_measured, booted });
    }
    events.take(&records);
    if let Some(path) = path.filter(|path| !events.has_same_events(&before) || !path.exists()) {
        events.save(&path).map_err(|error| Gap::unknown(format!("write {}: {error}", path.display())))?;
    }
    let booted = booted(host, &events);
    Ok(Known { events, not_measured: None, booted })
}

/// When the machine booted, in milliseconds since 1970.
fn booted(host: &Host, events: &Events) -> Option<u64> {
    let seconds = |line: &str| line.strip_prefix("btime ")?.trim().parse::<u64>().ok();
    let is_needed = !events.all().is_empty();
    let text = is_needed.then(|| host.proc("stat").ok()).flatten()?;
    text.lines().find_map(seconds)?.checked_mul(1000)
}

/// What a problem of an accelerator counts for.
fn accelerator_signal(host: &Host, found: &Inventory, problem: &Problem) -> Option<&'static str> {
    let is_warning = problem.level < FaultLevel::Fatal;
    match place(host, found, problem)? {
        Place::Adapter if is_warning => Some("rdma_adapter_warnings"),
        Place::Adapter => Some("rdma_adapters_failed"),
        Place::Gpu if is_warning => Some("gpu_warnings"),
        Place::Gpu => Some(match problem.advice {
            Advice::ReplaceHost | Advice::ContactSupport | Advice::CheckMechanicals => "gpus_need_replacement",
            Advice::NodeReboot | Advice::RestartBm | Advice::ResetFabric | Advice::RestartVm => "gpus_need_reboot",
            _ => "gpus_need_reset",
        }),
    }
}

fn host_signal(host: &Host, found: &Inventory, problem: &Problem) -> Option<&'static str> {
    let is_link = ["LINK_DOWN", "PCIE_LIMITED", "MODULE_ERROR", "MODULE_HIGH_TEMP"]
        .iter()
        .any(|code| problem.codes.iter().any(|has| has == code));
    // Ports of the front end are down, and narrow, by design.
    let is_adapter = problem.subsystem == Subsystem::Mlx5 && !is_link;
    let is_host = matches!(problem.subsystem, Subsystem::Machine | Subsystem::Pcie) || is_adapter;
    let is_of_host = is_host && place(host, found, problem).is_none();
    is_of_host.then_some(if problem.level == FaultLevel::Fatal { "hardware_failed" } else { "hardware_warnings" })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Gpu,
    Adapter,
}

/// The accelerator that a problem is about; a port of the bus counts as what is behind it.
fn place(host: &Host, found: &Inventory, problem: &Problem) -> Option<Place> {
    let address = problem.device.parse::<PciAddress>().ok();
    let has = |accelerator: PciAddress| {
        address == Some(accelerator) || address.is_some() && parent(host, accelerator) == address
    };
    let rdma = found.rdma().unwrap_or_default();
    match problem.subsystem {
        Subsystem::Nvidia | Subsystem::Nvswitch | Subsystem::Amdgpu => Some(Place::Gpu),
        Subsystem::Mlx5 | Subsystem::Pcie => {
            if found.gpus.iter().any(|gpu| has(gpu.address)) {
                return Some(Place::Gpu);
            }
            rdma.iter().any(|adapter| has(adapter.address)).then_some(Place::Adapter)
        }
        Subsystem::Storage | Subsystem::Machine => None,
    }
}
