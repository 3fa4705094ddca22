//! The host's cgroups, of version 1 or 2.

use crate::collector::Gap;
use crate::host::Host;

/// The hierarchy that systemd keeps its units in.
pub(super) struct Cgroups<'a> {
    host: &'a Host,
    is_v2: bool,
}

impl<'a> Cgroups<'a> {
    pub(super) fn of(host: &'a Host) -> Result<Self, Gap> {
        let is_v2 = host.has("sys/fs/cgroup/cgroup.controllers");
        if is_v2 || host.has("sys/fs/cgroup/systemd") {
            Ok(Self { host, is_v2 })
        } else {
            Err(Gap::unknown("the host's /sys/fs/cgroup is not mounted"))
        }
    }

    /// Whether a unit, or a cgroup below it, has a process.
    pub(super) fn is_populated(&self, slice: &str, unit: &str) -> bool {
        let base = if self.is_v2 { "sys/fs/cgroup" } else { "sys/fs/cgroup/systemd" };
        let folder = format!("{base}/{slice}/{unit}");
        if self.is_v2 {
            let events = self.host.file(&format!("{folder}/cgroup.events"));
            return events.is_ok_and(|text| text.lines().any(|line| line == "populated 1"));
        }
        let has_process = |folder: &str| {
            let processes = self.host.file(&format!("{folder}/cgroup.procs"));
            processes.is_ok_and(|text| !text.trim().is_empty())
        };
        has_process(&folder) || self.host.names(&folder).iter().any(|name| has_process(&format!("{folder}/{name}")))
    }

    /// The bound on the memory of all pods, in bytes; none where there is no bound.
    pub(super) fn pods_memory(&self) -> Result<Option<f64>, Gap> {
        let (base, file) = if self.is_v2 {
            ("sys/fs/cgroup", "memory.max")
        } else {
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
        };
        // The systemd driver's name, then cgroupfs's.
        let found = ["kubepods.slice", "kubepods"].iter().find(|name| self.host.has(&format!("{base}/{name}")));
        let Some(name) = found else { return Err(Gap::absent("the host has no cgroup of pods")) };
        Ok(self.host.file(&format!("{base}/{name}/{file}"))?.trim().parse().ok())
    }
}
