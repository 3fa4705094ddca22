//! Open files and threads of the whole host, of those that the kernel allows.

use super::cgroup::Cgroups;
use crate::collector::{CGROUPS, Kind, MINUTE, Sample};
use crate::host::Host;
use crate::signal::{Area, Gap, Signal, Unit, version_number};

/// The host's PID namespace (PROC_PID_INIT_INO).
const HOST_PID_NAMESPACE: &str = "pid:[4026531836]";

pub(super) const KIND: Kind = Kind {
    area: Area::Host,
    name: "limits",
    every: MINUTE,
    privilege: CGROUPS,
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
            source: "`/proc/loadavg`, `/proc/sys/kernel/{pid_max,threads-max}`; since Linux 6.14 pids.max of the pods' cgroup for pid_max",
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
    let [open, _, limit] = numbers.as_slice() else {
        return Err(Gap::unknown("/proc/sys/fs/file-nr has not three numbers"));
    };
    Ok((100.0 * open / limit.max(1.0), format!("{open} of {limit:.0} open files")))
}

fn threads(host: &Host) -> Result<(f64, String), Gap> {
    let text = host.proc("loadavg")?;
    // `0.10 0.20 0.30 2/842 12345`: running and all threads of the host, in every PID namespace.
    let threads = text.split(' ').nth(3).and_then(|word| word.split('/').nth(1)?.parse::<f64>().ok());
    let threads = threads.ok_or_else(|| Gap::unknown("/proc/loadavg has no number of threads"))?;
    let limit = pid_max(host)?.min(host.proc_number("sys/kernel/threads-max")?);
    Ok((100.0 * threads / limit.max(1.0), format!("{threads} of {limit} threads")))
}

/// The host's bound on processes and threads.
fn pid_max(host: &Host) -> Result<f64, Gap> {
    if !is_per_namespace(host) {
        return host.proc_number("sys/kernel/pid_max");
    }
    // The kubelet, which sees the host's, gives as many to the cgroup of pods, less those that it reserves.
    let of_pods = Cgroups::of(host)?.pods_pids().ok().flatten();
    let unknown = "the kernel shows pid_max of the agent's PID namespace, and the cgroup of pods has no pids.max";
    of_pods.ok_or_else(|| Gap::unknown(unknown))
}

/// Whether pid_max is that of the agent's own PID namespace: since Linux 6.14 each has one.
fn is_per_namespace(host: &Host) -> bool {
    let version = host.proc("sys/kernel/osrelease").ok().and_then(|text| version_number(&text));
    let own = std::fs::read_link(host.proc.join("self/ns/pid"));
    let is_own = own.is_ok_and(|link| link.as_os_str() != HOST_PID_NAMESPACE);
    is_own && version.is_some_and(|version| version >= 6_014_000.0)
}
