//! What the kernel logs about disks and full tables.

use super::MINUTE;
use crate::collector::{Area, Gap, Kind, Sample, Signal, Unit};
use crate::host::Host;
use crate::kernel_log::{Record, records};

/// The first run counts messages of this time before it.
const BEFORE: f64 = 600.0;

const SOURCE: &str = "the kernel's log, by syslog(2)";

pub(super) const KIND: Kind = Kind {
    area: Area::Host,
    name: "kernel_log",
    every: MINUTE,
    privilege: "the capability `SYSLOG`, which is optional: without it both are unknown",
    collect,
    signals: &[
        Signal {
            name: "kernel_io_errors",
            unit: Unit::Count,
            source: SOURCE,
            why: "A disk or its file system fails: data is lost, and the file system may turn read-only.",
            remedy: "Drain the node and replace it; of a block volume, check its attachment and iSCSI session.",
        },
        Signal {
            name: "kernel_full_tables",
            unit: Unit::Count,
            source: SOURCE,
            why: "The connection or neighbour table was full, so packets were dropped.",
            remedy: "See `conntrack_use` and `neighbour_use`.",
        },
    ],
};

/// Words of a message that all must be there.
const IO_ERRORS: &[&[&str]] = &[
    &["I/O error, dev "],
    &["Buffer I/O error on dev"],
    &["EXT4-fs error"],
    &["XFS (", "I/O error"],
    &["XFS (", "orruption"],
];
const FULL_TABLES: &[&[&str]] = &[&["nf_conntrack: table full"], &["neighbo", "table overflow"]];

/// Devices without a medium answer with such errors: that is no failure.
const HARMLESS: &[&str] = &["dev fd0", "dev sr0", "dev loop"];

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    let log = host.system.kernel_log().map_err(|error| Gap::unknown(format!("read the kernel's log: {error}")))?;
    let uptime = host.proc("uptime")?.split(' ').next().and_then(|word| word.parse::<f64>().ok());
    let uptime = uptime.ok_or_else(|| Gap::unknown("/proc/uptime has no number"))?;
    let since = *sample.memory.newest_message.get_or_insert(uptime - BEFORE);
    let records = records(&log);
    let new = |record: &Record| Some((record.at.filter(|at| *at > since)?, record.text.clone()));
    let lines: Vec<(f64, String)> = records.iter().filter_map(new).collect();
    for (signal, kinds) in [("kernel_io_errors", IO_ERRORS), ("kernel_full_tables", FULL_TABLES)] {
        let is_of = |text: &str| {
            kinds.iter().any(|words| words.iter().all(|word| text.contains(word)))
                && !HARMLESS.iter().any(|word| text.contains(word))
        };
        let mut found = lines.iter().filter(|(_, text)| is_of(text)).peekable();
        let last = found.peek().map_or_else(String::new, |(_, text)| format!("{text:.160}"));
        sample.value(signal, found.count() as f64, last);
    }
    sample.memory.newest_message = lines.last().map_or(Some(since), |(at, _)| Some(*at));
    Ok(())
}
