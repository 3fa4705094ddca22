//! Errors of PCI Express at accelerators, and at the ports that they are behind. The kernel's log has at most ten of them in five
//! seconds; these counts have all.

use crate::collector::{Kind, MINUTE, NO_PRIVILEGE, Sample};
use crate::hardware::device::FaultyDevice;
use crate::hardware::inventory::{Inventory, file, parent};
use crate::hardware::pci::PciAddress;
use crate::host::Host;
use crate::signal::{Area, Gap, Signal, Unit};

const SOURCE: &str =
    "`/sys/bus/pci/devices/ADDRESS/aer_dev_{fatal,nonfatal,correctable}` of accelerators and the ports before them";

pub(crate) const KIND: Kind = Kind {
    area: Area::Accelerators,
    name: "pcie_errors",
    every: MINUTE,
    privilege: NO_PRIVILEGE,
    collect,
    signals: &[
        Signal {
            name: "pcie_errors",
            unit: Unit::PerMinute,
            source: SOURCE,
            why: "An uncorrected error of the bus loses requests; a fatal one takes the device away.",
            remedy: "Drain the node, reboot it and uncordon it; if it happens again, report the host to Oracle.",
        },
        Signal {
            name: "pcie_corrected_errors",
            unit: Unit::PerMinute,
            source: SOURCE,
            why: "Corrected errors slow the device down and announce worse ones.",
            remedy: "Watch the device; if the rate stays, report the host to Oracle.",
        },
    ],
};

/// A signal, the files that it sums, and the lines with their sums.
const SIGNALS: &[(&str, &[(&str, &str)])] = &[
    ("pcie_errors", &[("aer_dev_fatal", "TOTAL_ERR_FATAL"), ("aer_dev_nonfatal", "TOTAL_ERR_NONFATAL")]),
    ("pcie_corrected_errors", &[("aer_dev_correctable", "TOTAL_ERR_COR")]),
];

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    let found = Inventory::of(host, &mut sample.memory.functions)?;
    let mut functions: Vec<PciAddress> = found.addresses();
    let ports: Vec<PciAddress> = functions.iter().filter_map(|address| parent(host, *address)).collect();
    functions.extend(ports);
    functions.sort_unstable();
    functions.dedup();
    for (signal, files) in SIGNALS {
        let gap =
            Gap::absent("no accelerator counts errors of PCI Express: a virtual machine, or firmware handles them");
        let totals = functions
            .iter()
            .filter_map(|address| Some((FaultyDevice::new(address, ""), total(host, *address, files)?)));
        sample.worst_rate(signal, totals, host.now, gap);
    }
    Ok(())
}

fn total(host: &Host, address: PciAddress, files: &[(&str, &str)]) -> Option<f64> {
    let read = |(name, line): &(&str, &str)| {
        let text = host.sys(&file(address, name)).ok()?;
        text.lines().find_map(|row| row.strip_prefix(line)?.trim().parse::<f64>().ok())
    };
    files.iter().map(read).sum()
}
