//! Files that tell network managers to leave our links, routes and rules alone. Written only where the operator allows it,
//! and noted, so that uninstalling takes all of them away ([`installer::drop_ins`]).

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use datapath::host::HostVnic;
use installer::drop_ins::{
    MARK, NETWORK_MANAGER, NETWORKD, NETWORKD_PODS, NETWORKD_VNICS, UNFINISHED, forget_drop_in, is_ours, note_drop_in,
    noted_drop_ins,
};
use ipam::{create, read_state};
use thiserror::Error;
use vcn::HOST_LINK_PREFIX;

/// A file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropIn {
    /// Its path from the host's root.
    pub path: &'static str,
    /// All of it.
    pub text: String,
}

/// Why one could not be written or removed.
#[derive(Debug, Error)]
pub enum DropInError {
    /// There is a file of that name which is not ours.
    #[error("{} is not ours (its first line says nothing of us): it is left as it is", .0.display())]
    Foreign(PathBuf),
    /// It could not be noted, and is not written: nobody would remove it. Or the notes cannot be read.
    #[error("noting which drop-ins are written")]
    Unnoted(#[source] installer::Error),
    /// The file system refused.
    #[error("{action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// For systemd-networkd.
pub(super) fn networkd(vnics: &[HostVnic]) -> Vec<DropIn> {
    let general = format!(
        "{MARK}# Pods live by rules and routes that systemd-networkd did not make.\n\
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

/// For NetworkManager.
pub(super) fn network_manager(vnics: &[HostVnic]) -> DropIn {
    let links = [format!("interface-name:{HOST_LINK_PREFIX}*")];
    let macs = macs(vnics).into_iter().map(|mac| format!("mac:{mac}"));
    let devices: Vec<String> = links.into_iter().chain(macs).collect();
    // Added to what others say.
    let text = format!(
        "{MARK}# The host ends of pods' links, and secondary VNICs.\n[keyfile]\nunmanaged-devices+={}\n",
        devices.join(";")
    );
    DropIn { path: NETWORK_MANAGER, text }
}

/// Those that were written when it was allowed and are there, from the host's root.
///
/// # Errors
/// When it is not known which were written.
pub(super) fn left_over(root: &Path, data_dir: &Path) -> Result<Vec<String>, DropInError> {
    let mut noted = noted_drop_ins(data_dir).map_err(DropInError::Unnoted)?;
    // What cannot be seen from here is for whoever uninstalls us to tell.
    noted.retain(|below| root.join(below).parent().is_some_and(Path::is_dir));
    Ok(noted.into_iter().collect())
}

/// Takes one away, unless it is somebody else's by now, and forgets it. Says whether there was one.
///
/// # Errors
/// [`DropInError::Io`], mostly because the directory is mounted read-only.
pub(super) fn remove(root: &Path, data_dir: &Path, below: &str) -> Result<bool, DropInError> {
    let path = root.join(below);
    let failed = |action| {
        let path = path.clone();
        move |source| DropInError::Io { action, path, source }
    };
    let ours = is_ours(&path).map_err(failed("reading"))? == Some(true);
    if ours {
        fs::remove_file(&path).map_err(failed("removing"))?;
    }
    forget_drop_in(data_dir, below).map_err(DropInError::Unnoted)?;
    Ok(ours)
}

impl DropIn {
    pub(super) fn is_in_place(&self, root: &Path) -> bool {
        read_state(&root.join(self.path)).is_ok_and(|text| text == self.text.as_bytes())
    }

    /// Replaces the file as a whole. The programs that read it run as users of their own.
    pub(super) fn write(&self, root: &Path, data_dir: &Path) -> Result<(), DropInError> {
        let path = root.join(self.path);
        let failed = |action| {
            let path = path.clone();
            move |source| DropInError::Io { action, path, source }
        };
        if is_ours(&path).map_err(failed("reading"))? == Some(false) {
            return Err(DropInError::Foreign(path));
        }
        note_drop_in(data_dir, self.path).map_err(DropInError::Unnoted)?;
        let directory = path.parent().unwrap_or(root);
        fs::create_dir_all(directory).map_err(failed("creating the directory of"))?;
        let new = path.with_extension(UNFINISHED);
        let mut file = create(&new, 0o644).map_err(failed("creating a file beside"))?;
        file.write_all(self.text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed("writing"))?;
        fs::rename(&new, &path).map_err(failed("putting in place"))
    }
}

impl fmt::Display for DropIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "write /{}", self.path)
    }
}

/// In one order, however VNICs are listed.
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

    fn vnics() -> Vec<HostVnic> {
        let host = |(name, last): (&str, u8)| HostVnic {
            vnic: vnic(name, last, "10.0.33"),
            placement: Placement::Device { link: "ens5".parse().unwrap() },
            table: TableId(1000),
            mtu: Mtu::VCN,
            pod_blocks: Vec::new(),
        };
        [("storage", 0x0c), ("pods", 0x0b)].map(host).to_vec()
    }

    fn all() -> Vec<DropIn> {
        let mut all = networkd(&vnics());
        all.push(network_manager(&vnics()));
        all
    }

    #[test]
    fn each_reads_as_in_the_golden_folder() {
        for drop_in in all() {
            let name = drop_in.path.replace('/', "_");
            let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/drop-ins").join(&name);
            if std::env::var_os("BLESS").is_some() {
                fs::write(&golden, &drop_in.text).unwrap();
            }
            assert_eq!(fs::read_to_string(&golden).unwrap_or_default(), drop_in.text, "{name}");
        }
    }

    #[test]
    fn ours_are_written_and_noted_and_those_of_others_are_left() {
        let root = tempfile::tempdir().unwrap();
        let data = tempfile::tempdir().unwrap();
        let foreign = root.path().join(NETWORK_MANAGER);
        fs::create_dir_all(foreign.parent().unwrap()).unwrap();
        fs::write(&foreign, "[keyfile]\n").unwrap();
        for drop_in in all() {
            let written = drop_in.write(root.path(), data.path());
            assert_eq!(written.is_ok(), drop_in.path != NETWORK_MANAGER, "{written:?}");
            assert_eq!(drop_in.is_in_place(root.path()), drop_in.path != NETWORK_MANAGER);
            let notes = fs::read_to_string(data.path().join("drop-ins.json")).unwrap();
            assert_eq!(notes.contains(drop_in.path), drop_in.path != NETWORK_MANAGER, "{notes}");
        }
        assert_eq!(fs::read_to_string(&foreign).unwrap(), "[keyfile]\n");
    }

    #[test]
    fn what_cannot_be_noted_is_not_written() {
        let root = tempfile::tempdir().unwrap();
        let data = root.path().join("data");
        fs::write(&data, "no directory").unwrap();
        for drop_in in all() {
            assert!(matches!(drop_in.write(root.path(), &data), Err(DropInError::Unnoted(_))));
            assert!(!root.path().join(drop_in.path).exists());
        }
    }
}
