//! Which systemd units run on the host. Their cgroups show it, without a request to systemd.

use std::path::{Path, PathBuf};

/// Where systemd keeps its services: in version 2 of cgroups, and in its own hierarchy of version 1.
const SLICES: [&str; 2] = ["sys/fs/cgroup/system.slice", "sys/fs/cgroup/systemd/system.slice"];
/// The prefix of the units that operations of the controller start (daemon/src/operation).
const PREFIX: &str = "oke-node-";
/// The most units that are listed: more than operations start on a node at the same time.
const MAX: usize = 4;

/// Whether a service runs.
pub(crate) fn is_running(host_root: &Path, unit: &str) -> bool {
    slices(host_root).any(|slice| slice.join(unit).is_dir())
}

/// The running services that operations of the controller started. They outlive the Pod that started them.
pub(crate) fn of_operations(host_root: &Path) -> Vec<String> {
    let names = slices(host_root).filter_map(|slice| std::fs::read_dir(slice).ok()).flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let mut units: Vec<String> =
        names.filter(|name| name.starts_with(PREFIX) && name.ends_with(".service")).take(MAX).collect();
    units.sort();
    units
}

fn slices(host_root: &Path) -> impl Iterator<Item = PathBuf> {
    SLICES.iter().map(move |slice| host_root.join(slice))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_operations_are_found_in_both_versions_of_cgroups() {
        for slice in SLICES {
            let host = tempfile::tempdir().unwrap();
            assert!(of_operations(host.path()).is_empty());
            for unit in ["oke-node-growfs.service", "oke-node.slice", "kubelet.service"] {
                std::fs::create_dir_all(host.path().join(slice).join(unit)).unwrap();
            }
            assert_eq!(of_operations(host.path()), ["oke-node-growfs.service"]);
            assert!(is_running(host.path(), "kubelet.service") && !is_running(host.path(), "crio.service"));
        }
    }
}
