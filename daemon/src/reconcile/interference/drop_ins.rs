//! Files that make network managers leave our links, routes and rules alone. Each is recorded before it is written, so that
//! uninstalling removes all of them ([`installer::drop_ins`]).

use std::fmt;
use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};
use datapath::host::HostVnic;
use installer::drop_ins::{
    MARK, NETWORK_MANAGER, NETWORKD, NETWORKD_PODS, NETWORKD_VNICS, UNFINISHED, forget_drop_in, is_ours, note_drop_in,
    noted_drop_ins,
};
use ipam::{AtomicFile, read_state};
use vcn::HOST_LINK_PREFIX;

/// One of our files for a network manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DropIn {
    /// From the host's root.
    path: &'static str,
    text: String,
}

/// One change of a drop-in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Write(DropIn),
    /// From the host's root.
    Remove(String),
}

/// For systemd-networkd.
pub(super) fn networkd(vnics: &[HostVnic]) -> Vec<DropIn> {
    let general = format!(
        "{MARK}# Pods use rules and routes that systemd-networkd did not create.\n\
         [Network]\nManageForeignRoutingPolicyRules=no\nManageForeignRoutes=no\n"
    );
    let pods =
        format!("{MARK}# The host ends of pods' links.\n[Match]\nName={HOST_LINK_PREFIX}*\n[Link]\nUnmanaged=yes\n");
    let mut wanted = vec![DropIn { path: NETWORKD, text: general }, DropIn { path: NETWORKD_PODS, text: pods }];
    if !vnics.is_empty() {
        let macs = macs(vnics).join(" ");
        let text = format!("{MARK}# Secondary VNICs.\n[Match]\nMACAddress={macs}\n[Link]\nUnmanaged=yes\n");
        wanted.push(DropIn { path: NETWORKD_VNICS, text });
    }
    wanted
}

/// For NetworkManager. Its list is added to those of other files.
pub(super) fn network_manager(vnics: &[HostVnic]) -> DropIn {
    let macs = macs(vnics).into_iter().map(|mac| format!("mac:{mac}"));
    let devices: Vec<String> = [format!("interface-name:{HOST_LINK_PREFIX}*")].into_iter().chain(macs).collect();
    let text = format!(
        "{MARK}# The host ends of pods' links, and secondary VNICs.\n[keyfile]\nunmanaged-devices+={}\n",
        devices.join(";")
    );
    DropIn { path: NETWORK_MANAGER, text }
}

/// Removes what was written while it was allowed. A file in a directory that is not mounted here stays recorded, for the
/// uninstaller to report.
///
/// # Errors
/// When the record cannot be read.
pub(super) fn removals(root: &Path, data_dir: &Path) -> anyhow::Result<Vec<Step>> {
    let noted = noted_drop_ins(data_dir).context("reading which drop-ins were written")?;
    let is_mounted = |path: &String| root.join(path).parent().is_some_and(Path::is_dir);
    Ok(noted.into_iter().filter(is_mounted).map(Step::Remove).collect())
}

impl DropIn {
    pub(super) fn is_in_place(&self, root: &Path) -> bool {
        read_state(&root.join(self.path)).is_ok_and(|text| text == self.text.as_bytes())
    }

    /// Replaces the whole file. Every user may read it, because its readers are not root.
    fn write(&self, root: &Path, data_dir: &Path) -> anyhow::Result<()> {
        let path = root.join(self.path);
        let shown = path.display();
        if is_ours(&path).with_context(|| format!("reading {shown}"))? == Some(false) {
            bail!("{shown} was written by another program: its first line lacks our mark. Move the file away");
        }
        note_drop_in(data_dir, self.path).context("recording the drop-in, which is therefore not written")?;
        let write = || {
            fs::create_dir_all(path.parent().unwrap_or(root))?;
            let mut file = AtomicFile::create_as(&path, path.with_extension(UNFINISHED), 0o644)?;
            file.write_all(self.text.as_bytes())?;
            file.commit()
        };
        write().with_context(|| format!("writing {shown}"))
    }
}

impl Step {
    pub(super) fn path(&self) -> &str {
        match self {
            Self::Write(drop_in) => drop_in.path,
            Self::Remove(path) => path,
        }
    }

    /// Afterwards the file is as desired, and the record lists our files. Returns whether a file changed: one that another
    /// program put in its place stays.
    pub(super) fn apply(&self, root: &Path, data_dir: &Path) -> anyhow::Result<bool> {
        match self {
            Self::Write(drop_in) => drop_in.write(root, data_dir).map(|()| true),
            Self::Remove(below) => {
                let path = root.join(below);
                let ours = is_ours(&path).with_context(|| format!("reading {}", path.display()))? == Some(true);
                if ours {
                    fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
                }
                forget_drop_in(data_dir, below).context("recording that the drop-in is gone")?;
                Ok(ours)
            }
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if matches!(self, Self::Write(_)) { "write" } else { "remove" };
        write!(f, "{verb} /{}", self.path())
    }
}

/// Sorted, so that the order of VNICs rewrites no file.
fn macs(vnics: &[HostVnic]) -> Vec<String> {
    let mut macs: Vec<String> = vnics.iter().map(|host| host.vnic.mac.to_string()).collect();
    macs.sort();
    macs
}

#[cfg(test)]
mod tests {
    use datapath::host::Placement;
    use vcn::{Mtu, TableId};

    use super::*;
    use crate::fixture::vnic;

    fn all() -> Vec<DropIn> {
        let host = |(name, last): (&str, u8)| HostVnic {
            vnic: vnic(name, last, "10.0.33"),
            placement: Placement::Device { link: "ens5".parse().unwrap() },
            table: TableId(1000),
            mtu: Mtu::VCN,
            pod_blocks: Vec::new(),
            routes: Vec::new(),
        };
        let vnics = [("storage", 0x0c), ("pods", 0x0b)].map(host);
        [networkd(&vnics), vec![network_manager(&vnics)]].concat()
    }

    #[test]
    fn drop_in_equals_golden_file() {
        for drop_in in all() {
            let name = drop_in.path.replace('/', "_");
            let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/drop-ins").join(&name);
            if std::env::var_os("UPDATE_GOLDEN").is_some() {
                fs::write(&golden, &drop_in.text).unwrap();
            }
            assert_eq!(fs::read_to_string(&golden).unwrap_or_default(), drop_in.text, "{name}");
        }
    }

    #[test]
    fn drop_in_is_not_written_without_its_record() {
        let root = tempfile::tempdir().unwrap();
        let data = root.path().join("data");
        fs::write(&data, "no directory").unwrap();
        for drop_in in all() {
            assert!(Step::Write(drop_in.clone()).apply(root.path(), &data).is_err());
            assert!(!root.path().join(drop_in.path).exists());
        }
    }
}
