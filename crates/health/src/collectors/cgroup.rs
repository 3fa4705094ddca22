//! The host's cgroups, of version 1 or 2, as the agent's container sees them.

use crate::host::Host;
use crate::signal::Gap;

/// Where version 1 keeps what does not depend on the reader's PID namespace: `cgroup.procs` leaves out the processes of others.
const PIDS: &str = "sys/fs/cgroup/pids";
/// The hierarchy of systemd's units on version 1, and its copy in version 2.
const SYSTEMD_HIERARCHY: &str = "sys/fs/cgroup/systemd";
const UNIFIED_HIERARCHY: &str = "sys/fs/cgroup/unified";
const V2: &str = "sys/fs/cgroup";

/// More slices than a host has.
const MAX_SLICES: usize = 100;

/// The hierarchy that systemd keeps its units in.
pub(super) struct Cgroups<'a> {
    host: &'a Host,
    is_v2: bool,
}

/// Whether a unit has processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnitState {
    Running,
    Stopped,
    /// Nothing shows whether it has processes.
    Unclear,
}

impl<'a> Cgroups<'a> {
    pub(super) fn of(host: &'a Host) -> Result<Self, Gap> {
        let is_v2 = host.has("sys/fs/cgroup/cgroup.controllers");
        if is_v2 || host.has(SYSTEMD_HIERARCHY) {
            Ok(Self { host, is_v2 })
        } else {
            Err(Gap::unknown("the host's /sys/fs/cgroup is not mounted"))
        }
    }

    /// Whether a unit, or a cgroup below it, has a process.
    pub(super) fn unit(&self, unit: &str) -> UnitState {
        let bases: &[&str] = if self.is_v2 { &[V2] } else { &[PIDS, UNIFIED_HIERARCHY, SYSTEMD_HIERARCHY] };
        let folders = bases.iter().flat_map(|base| self.slices(base)).map(|slice| format!("{slice}/{unit}"));
        let folders: Vec<String> = folders.filter(|folder| self.host.has(folder)).collect();
        let states: Vec<Option<bool>> = folders.iter().map(|folder| self.has_processes(folder)).collect();
        // A unit that is stopped has no cgroup. Where systemd's slices are elsewhere, such as on a node in a container, that proves nothing.
        let has_slices = || bases.iter().any(|base| self.host.has(&format!("{base}/system.slice")));
        if states.contains(&Some(true)) {
            UnitState::Running
        } else if states.contains(&Some(false)) || (folders.is_empty() && has_slices()) {
            UnitState::Stopped
        } else {
            UnitState::Unclear
        }
    }

    /// The folders of the slices that units are in: the root, its slices, and those one level below.
    fn slices(&self, base: &str) -> Vec<String> {
        let is_of_units = |name: &&String| {
            let is_of_others = ["kubepods", "user", "machine"].iter().any(|other| name.starts_with(other));
            name.ends_with(".slice") && !is_of_others
        };
        let below = |folder: &str| -> Vec<String> {
            let names = self.host.names(folder);
            names.iter().filter(is_of_units).take(MAX_SLICES).map(|name| format!("{folder}/{name}")).collect()
        };
        let slices = below(base);
        let deeper: Vec<String> = slices.iter().flat_map(|slice| below(slice)).collect();
        std::iter::once(base.to_owned()).chain(slices).chain(deeper).collect()
    }

    /// Whether a cgroup has processes, where its files show it.
    fn has_processes(&self, folder: &str) -> Option<bool> {
        if let Ok(events) = self.host.file(&format!("{folder}/cgroup.events")) {
            return Some(events.lines().any(|line| line == "populated 1"));
        }
        if folder.starts_with(PIDS) {
            let current = self.host.file(&format!("{folder}/pids.current")).ok()?;
            return Some(current.trim().parse::<u64>().ok()? > 0);
        }
        // Those of another PID namespace are left out: only what is listed is a proof.
        let is_listed = |folder: &str| {
            let processes = self.host.file(&format!("{folder}/cgroup.procs"));
            processes.is_ok_and(|text| !text.trim().is_empty())
        };
        let names = self.host.names(folder);
        let is_found = is_listed(folder) || names.iter().any(|name| is_listed(&format!("{folder}/{name}")));
        is_found.then_some(true)
    }

    /// The bound on the memory of all pods, in bytes; none where there is no bound.
    pub(super) fn pods_memory(&self) -> Result<Option<f64>, Gap> {
        self.of_pods(["sys/fs/cgroup/memory/{}/memory.limit_in_bytes", "sys/fs/cgroup/{}/memory.max"])
    }

    /// The bound on the processes and threads of all pods; none where there is no bound.
    pub(super) fn pods_pids(&self) -> Result<Option<f64>, Gap> {
        self.of_pods(["sys/fs/cgroup/pids/{}/pids.max", "sys/fs/cgroup/{}/pids.max"])
    }

    /// A number of the cgroup of all pods, by the file of version 1 or 2; none for `max`.
    fn of_pods(&self, [v1, v2]: [&str; 2]) -> Result<Option<f64>, Gap> {
        let file = if self.is_v2 { v2 } else { v1 };
        // The systemd driver's name, then cgroupfs's.
        let paths = ["kubepods.slice", "kubepods"].map(|name| file.replace("{}", name));
        let Some(path) = paths.iter().find(|path| self.host.has(path)) else {
            return Err(Gap::absent("the host has no cgroup of pods"));
        };
        Ok(self.host.file(path)?.trim().parse().ok())
    }
}
