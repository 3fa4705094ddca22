//! Errors of the host's memory, as the kernel's EDAC drivers count them since boot.

use crate::collector::{Kind, MINUTE, NO_PRIVILEGE, Sample};
use crate::hardware::device::FaultyDevice;
use crate::host::{Host, names};
use crate::signal::{Area, Gap, Signal, Unit};

pub(crate) const KIND: Kind = Kind {
    area: Area::Host,
    name: "memory_errors",
    every: MINUTE,
    privilege: NO_PRIVILEGE,
    collect,
    signals: &[
        Signal {
            name: "memory_uncorrected_errors",
            unit: Unit::Count,
            source: "`/sys/devices/system/edac/mc/mc*/ue_count`",
            why: "Memory errors that ECC could not correct end programs, or the kernel.",
            remedy: "Drain the node, report the host to Oracle and replace the node.",
        },
        Signal {
            name: "memory_corrected_errors",
            unit: Unit::PerMinute,
            source: "`/sys/devices/system/edac/mc/mc*/ce_count`",
            why: "A memory module with many corrected errors often fails later.",
            remedy: "Watch the node; if the rate stays, drain it and report the host to Oracle.",
        },
    ],
};

const FOLDER: &str = "devices/system/edac/mc";

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    let controllers = names(&host.sys.join(FOLDER));
    let controllers: Vec<String> = controllers.into_iter().filter(|name| name.starts_with("mc")).collect();
    let counts = |file: &str| -> Vec<(&String, f64)> {
        let read = |name| Some((name, host.sys_number(&format!("{FOLDER}/{name}/{file}")).ok()?));
        controllers.iter().filter_map(read).collect()
    };
    let (uncorrected, corrected) = (counts("ue_count"), counts("ce_count"));
    if uncorrected.is_empty() || corrected.is_empty() {
        return Err(Gap::absent("the kernel counts no memory errors: a virtual machine, or no EDAC driver"));
    }
    let wrong = uncorrected.iter().filter(|(_, count)| *count > 0.0);
    let wrong = wrong.map(|(name, count)| FaultyDevice::new(name, format!("{count} errors"))).collect();
    sample.faulty("memory_uncorrected_errors", wrong);
    let total: f64 = corrected.iter().map(|(_, count)| count).sum();
    sample.rate("memory_corrected_errors", total, host.now, format!("{total} since boot"));
    Ok(())
}
