//! What the kernel logs about disks and full tables.

mod disk_errors;

use std::io;

use super::block_devices::root_devices;
use crate::collector::{Kind, MINUTE, Sample};
use crate::host::Host;
use crate::kernel_log::records;
use crate::signal::{Area, Gap, Signal, Unit};
use crate::verdict::Severity;
use disk_errors::{failing_device, is_harmless, is_of};

/// The first run counts messages of this time before the newest one, in seconds.
const FIRST_WINDOW_SECONDS: f64 = 600.0;

const SOURCE: &str = "the kernel's log, by syslog(2)";

pub(super) const KIND: Kind = Kind {
    area: Area::Host,
    name: "kernel_log",
    every: MINUTE,
    privilege: "the capability `SYSLOG`, which is optional: without it both are not applicable",
    collect,
    signals: &[
        Signal {
            name: "kernel_io_errors",
            unit: Unit::Count,
            source: SOURCE,
            why: "A disk or its file system fails: data is lost, and the file system may turn read-only. Of other disks than the root's it is a warning.",
            remedy: "Drain the node and replace it if the detail names the root's disk. Of another disk, check its attachment and iSCSI session, and replace the volume or the pod that uses it.",
        },
        Signal {
            name: "kernel_full_tables",
            unit: Unit::Count,
            source: SOURCE,
            why: "The connection or neighbor table was full, so packets were dropped.",
            remedy: "See `conntrack_use` and `neighbour_use`.",
        },
    ],
};

/// Words of a message that all must be there.
const FULL_TABLES: &[&[&str]] = &[&["nf_conntrack: table full"], &["neighbo", "table overflow"]];

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    let log = host.system.kernel_log().map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => Gap::absent("not granted: the capability SYSLOG (docs/signals.md)"),
        _ => Gap::unknown(format!("read the kernel's log: {error}")),
    })?;
    let records = records(&log);
    if records.last().is_some_and(|record| record.at.is_none()) {
        return Err(Gap::unknown("the kernel's log has no times: set `printk.time=1`"));
    }
    // The log's clock may be hours behind the uptime, so the newest message is now.
    let newest = records.iter().filter_map(|record| record.at).fold(0.0, f64::max);
    let since = *sample.memory.newest_message.get_or_insert(newest - FIRST_WINDOW_SECONDS);
    let new = records.iter().filter(|record| record.at.is_some_and(|at| at > since));
    let texts: Vec<&str> = new.map(|record| record.text.as_str()).collect();
    disk_errors(host, sample, &texts);
    let is_full = |text: &&&str| FULL_TABLES.iter().any(|words| words.iter().all(|word| text.contains(word)));
    let mut full = texts.iter().filter(is_full).peekable();
    let first = full.peek().map_or_else(String::new, |text| format!("{text:.160}"));
    sample.value("kernel_full_tables", full.count() as f64, first);
    sample.memory.newest_message = Some(newest.max(since));
    Ok(())
}

/// Counts failures of disks. Those of the root's disk come first in the evidence.
fn disk_errors(host: &Host, sample: &mut Sample, texts: &[&str]) {
    let failures = texts.iter().filter_map(|text| Some((failing_device(text)?, *text)));
    let failures: Vec<(String, &str)> = failures.filter(|(device, _)| !is_harmless(device)).collect();
    let root = if failures.is_empty() { Vec::new() } else { root_devices(host) };
    // A message without a device, or a root without one, may be about the root's disk.
    let is_root = |device: &str| device.is_empty() || root.is_empty() || is_of(device, &root);
    let of_root = failures.iter().find(|(device, _)| is_root(device));
    let detail = match (of_root, failures.first()) {
        (Some((_, text)), _) => format!("the root's disk: {text:.160}"),
        (None, Some((device, text))) => format!("the disk {device}: {text:.160}"),
        (None, None) => String::new(),
    };
    let at_most = if of_root.is_some() { Severity::Critical } else { Severity::Warning };
    sample.value_at_most("kernel_io_errors", failures.len() as f64, detail, at_most);
}
