//! Open files and threads of the whole host, of those that the kernel allows.

use super::{MINUTE, NOTHING};
use crate::collector::{Area, Gap, Kind, Sample, Signal, Unit};
use crate::host::Host;

pub(super) const KIND: Kind = Kind {
    area: Area::Host,
    name: "limits",
    every: MINUTE,
    privilege: NOTHING,
    collect,
    signals: &[
        Signal {
            name: "open_files",
            unit: Unit::Percent,
            source: "`/proc/sys/fs/file-nr`",
            why: "At the bound no program on the host can open a file or a connection.",
            remedy: "Find the program that leaks (`ls /proc/*/fd | wc -l`), or raise `fs.file-max`.",
        },
        Signal {
            name: "pids",
            unit: Unit::Percent,
            source: "`/proc/loadavg`, `/proc/sys/kernel/{pid_max,threads-max}`",
            why: "At the bound no process or thread starts: the kubelet, the runtime and probes fail.",
            remedy: "Find the pod with the most threads (`systemd-cgtop -T`), set the kubelet's `podPidsLimit`, or raise `kernel.pid_max`.",
        },
    ],
};

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    sample.result("open_files", open_files(host));
    sample.result("pids", threads(host));
    Ok(())
}

fn open_files(host: &Host) -> Result<(f64, String), Gap> {
    let text = host.proc("sys/fs/file-nr")?;
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [open, _, most] = numbers.as_slice() else {
        return Err(Gap::unknown("/proc/sys/fs/file-nr has not three numbers"));
    };
    Ok((100.0 * open / most.max(1.0), format!("{open} of {most:.0} open files")))
}

fn threads(host: &Host) -> Result<(f64, String), Gap> {
    let text = host.proc("loadavg")?;
    // `0.10 0.20 0.30 2/842 12345`: running and all threads of the host, in every PID namespace.
    let threads = text.split(' ').nth(3).and_then(|word| word.split('/').nth(1)?.parse::<f64>().ok());
    let threads = threads.ok_or_else(|| Gap::unknown("/proc/loadavg has no number of threads"))?;
    let most = host.proc_number("sys/kernel/pid_max")?.min(host.proc_number("sys/kernel/threads-max")?);
    Ok((100.0 * threads / most.max(1.0), format!("{threads} of {most} threads")))
}
