//! Which other program probably changes a setting, for the message of an item that is set back again and again.

use std::path::Path;

use tunables::{Item, ItemReport, ItemState, keys};

use super::resolve::Resolved;
use crate::sources::host_units::is_running;

/// Units of programs that set kernel settings again and again, each with its name.
const UNITS: [(&str, &str); 2] = [("tuned.service", "TuneD"), ("NetworkManager.service", "NetworkManager")];

/// Folders of systemd-sysctl, as far as the agent sees them.
const SYSCTL_FOLDERS: [&str; 2] = ["usr/lib/sysctl.d", "usr/local/lib/sysctl.d"];

/// Bytes read of a file of settings.
const FILE_MAX: usize = 64 << 10;

/// Names the likely writer in each report about a value that is not set back any more.
pub(super) fn name_writers(reports: &mut [ItemReport], resolved: &Resolved, host_root: &Path) {
    for reverted in reports.iter_mut().filter(|report| report.state == ItemState::Reverted) {
        let writer = reverted.item.parse().map(|item| likely_writer(&item, resolved, host_root));
        reverted.message = format!("likely writer: {}; {}", writer.unwrap_or_default(), reverted.message);
    }
}

/// The likely writer, in words.
fn likely_writer(item: &Item, resolved: &Resolved, host_root: &Path) -> String {
    let Item::Sysctl(key) = item else { return running_unit(host_root) };
    if let Some(partner) = item.counterpart().filter(|partner| resolved.apply.contains_key(partner)) {
        return format!("the kernel, which sets it to 0 when a policy sets {partner}");
    }
    if key.starts_with("net.netfilter.nf_conntrack_") {
        return "kube-proxy (its settings conntrack.*)".to_owned();
    }
    if let Some(file) = SYSCTL_FOLDERS.iter().find_map(|folder| file_with(&host_root.join(folder), key)) {
        return format!("systemd-sysctl, with {file}");
    }
    running_unit(host_root)
}

fn running_unit(host_root: &Path) -> String {
    let running = UNITS.iter().filter(|(unit, _)| is_running(host_root, unit));
    let running: Vec<&str> = running.map(|(_, name)| *name).collect();
    if running.is_empty() { "unknown".to_owned() } else { running.join(" or ") }
}

/// The first file in a folder that sets a key.
fn file_with(folder: &Path, key: &str) -> Option<String> {
    let mut files: Vec<_> = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).collect();
    files.sort();
    let path = keys::path(key);
    let sets = |line: &str| {
        let name = line.split_once('=').map_or("", |(name, _)| name.trim().trim_start_matches('-'));
        name == key || name == path
    };
    let file = files.into_iter().filter(|file| file.extension().is_some_and(|it| it == "conf")).find(|file| {
        ipam::read_named(file)
            .is_ok_and(|text| text.len() <= FILE_MAX && String::from_utf8_lossy(&text).lines().any(sets))
    })?;
    Some(format!("{}/{}", folder.file_name()?.to_string_lossy(), file.file_name()?.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tunables::DocumentMode;

    use super::*;
    use crate::node_policy::plan::tests::document;
    use crate::node_policy::resolve::resolve;

    #[test]
    fn likely_writer_is_found_by_key_files_and_units() {
        let host = tempfile::tempdir().unwrap();
        let resolved = resolve(&document(&[("vm.dirty_ratio", "20", DocumentMode::Apply)]), &Default::default());
        let writer = |item: &Item| likely_writer(item, &resolved, host.path());
        let of = |key: &str| writer(&Item::Sysctl(key.to_owned()));
        assert_eq!(of("vm.swappiness"), "unknown");
        assert_eq!(of("net.netfilter.nf_conntrack_max"), "kube-proxy (its settings conntrack.*)");
        assert_eq!(of("vm.dirty_bytes"), "the kernel, which sets it to 0 when a policy sets vm.dirty_ratio");
        fs::create_dir_all(host.path().join("sys/fs/cgroup/system.slice/tuned.service")).unwrap();
        assert_eq!(of("vm.swappiness"), "TuneD");
        assert_eq!(writer(&Item::HugePages), "TuneD");
        fs::create_dir_all(host.path().join("usr/lib/sysctl.d")).unwrap();
        fs::write(host.path().join("usr/lib/sysctl.d/50-a.conf"), "# vm.swappiness = 1\n-vm/swappiness = 1\n").unwrap();
        assert_eq!(of("vm.swappiness"), "systemd-sysctl, with sysctl.d/50-a.conf");
    }
}
