//! Where a file of a policy belongs: its folder, with the permit that it needs and the unit that reads it.

use api::node_policy::{
    DROP_IN_SUFFIX, FILE_NAME_MAX, FileGrant, HOST_FOLDERS, HostFolder, HostUnit, SYSCTL_FOLDER, SYSTEMD_FOLDER,
};

use crate::refusal::Refusal;

/// Where a file belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The folder that a container mounts to see it.
    pub folder: &'static str,
    /// The setting that permits the file.
    pub grant: FileGrant,
    /// The unit that reads it.
    pub unit: Option<HostUnit>,
}

impl Place {
    /// Whether systemd must read its units again.
    pub fn is_of_systemd(self) -> bool {
        self.folder == SYSTEMD_FOLDER
    }

    /// Whether systemd-sysctl reads it.
    pub fn is_of_sysctl(self) -> bool {
        self.folder == SYSCTL_FOLDER
    }
}

/// Our own drop-ins, and OKE's, which `oke bootstrap` writes again.
const RESERVED_NAMES: [&str; 2] = [OWN_NAME, "00-default.conf"];
/// The name of the drop-ins that reservations become.
pub const OWN_NAME: &str = "90-oke-node-manager.conf";

const OUTSIDE: Refusal = Refusal {
    reason: "policies have no files in this folder",
    next_step: "Use a folder of docs/node-policies.md, or the node pool's cloud-init.",
};
const NAME: Refusal = Refusal {
    reason: "the program that reads this folder does not read a file of this name",
    next_step: "Use letters, digits, periods, - and _, and the suffix of the folder, such as .conf.",
};
const RESERVED: Refusal = Refusal {
    reason: "OKE or this project writes a file of this name",
    next_step: "Use another name; drop-ins with a higher number apply later.",
};

/// Where a file of a policy belongs.
///
/// # Errors
/// If policies may not have this file.
pub fn place(path: &str) -> Result<Place, Refusal> {
    let place = locate(path)?;
    let is_reserved = RESERVED_NAMES.iter().any(|name| path.ends_with(&format!("/{name}")));
    if is_reserved && place.unit == Some(HostUnit::Kubelet) { Err(RESERVED) } else { Ok(place) }
}

/// Where a file belongs, also if reservations become this file.
pub fn locate(path: &str) -> Result<Place, Refusal> {
    let (parent, name) = path.rsplit_once('/').ok_or(OUTSIDE)?;
    let (suffix, place) = match HOST_FOLDERS.iter().find(|folder| folder.path == parent) {
        Some(HostFolder { path, suffix, grant, unit }) => (*suffix, Place { folder: path, grant: *grant, unit: *unit }),
        None => {
            let unit = unit_of(parent).ok_or(OUTSIDE)?;
            (DROP_IN_SUFFIX, Place { folder: SYSTEMD_FOLDER, grant: FileGrant::HostCode, unit: Some(unit) })
        }
    };
    if !is_name(name, suffix) {
        return Err(NAME);
    }
    Ok(place)
}

/// The unit whose drop-ins are in a folder.
fn unit_of(folder: &str) -> Option<HostUnit> {
    let unit = folder.strip_prefix(SYSTEMD_FOLDER)?.strip_prefix('/')?.strip_suffix(".d")?;
    HostUnit::from_word(unit)
}

/// Whether programs read a file of this name, and no character of it means anything to systemd or a shell.
fn is_name(name: &str, suffix: &str) -> bool {
    let is_char = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    name.len() <= FILE_NAME_MAX
        && name.len() > suffix.len()
        && name.ends_with(suffix)
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.bytes().all(is_char)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_has_the_permit_and_the_unit_of_its_folder() {
        for (path, grant, unit) in [
            ("/etc/sysctl.d/90-web.conf", FileGrant::HostFiles, Some(HostUnit::SystemdSysctl)),
            ("/etc/security/limits.d/90-web.conf", FileGrant::HostFiles, None),
            ("/etc/chrony.d/time.conf", FileGrant::HostFiles, Some(HostUnit::Chronyd)),
            ("/etc/NetworkManager/conf.d/10-x.conf", FileGrant::HostFiles, Some(HostUnit::NetworkManager)),
            ("/etc/crio/crio.conf.d/20-x.conf", FileGrant::HostCode, Some(HostUnit::Crio)),
            ("/etc/containerd/conf.d/20-x.toml", FileGrant::HostCode, Some(HostUnit::Containerd)),
            ("/etc/kubernetes/kubelet.conf.d/50-x.conf", FileGrant::HostCode, Some(HostUnit::Kubelet)),
            ("/etc/systemd/system/crio.service.d/50-x.conf", FileGrant::HostCode, Some(HostUnit::Crio)),
            ("/etc/udev/rules.d/99-x.rules", FileGrant::HostCode, None),
            ("/etc/modprobe.d/x.conf", FileGrant::HostCode, None),
        ] {
            let found = place(path).unwrap();
            assert_eq!((found.grant, found.unit), (grant, unit), "{path}");
            assert_eq!(found.is_of_systemd(), path.starts_with(SYSTEMD_FOLDER), "{path}");
        }
        assert!(HOST_FOLDERS.is_sorted_by(|one, other| one.path < other.path));
    }

    #[test]
    fn path_outside_the_list_is_refused() {
        for path in [
            "",
            "x.conf",
            "/etc/passwd",
            "/etc/sysctl.conf",
            "/etc/sysctl.d",
            "/etc/sysctl.d/",
            "/etc/sysctl.d/.conf",
            "/etc/sysctl.d/.x.conf",
            "/etc/sysctl.d/x.conf.bak",
            "/etc/sysctl.d/a b.conf",
            "/etc/sysctl.d/$HOME.conf",
            "/etc/sysctl.d/%n.conf",
            "/etc/sysctl.d/../cron.d/x.conf",
            "/etc/sysctl.d/sub/x.conf",
            "/etc//sysctl.d/x.conf",
            "etc/sysctl.d/x.conf",
            "/etc/systemd/system/sshd.service.d/x.conf",
            "/etc/systemd/system/kubelet.service",
            "/etc/systemd/system/kubelet.service.d/x.service",
            "/etc/systemd/system/../system/kubelet.service.d/x.conf",
            "/etc/systemd/system/kubelet.service.d/00-default.conf",
            "/etc/kubernetes/kubelet.conf.d/90-oke-node-manager.conf",
            "/etc/kubernetes/kubelet-config.json",
            "/etc/modprobe.d/x.rules",
            &format!("/etc/sysctl.d/{}.conf", "x".repeat(60)),
        ] {
            let refusal = place(path).expect_err(path);
            assert!(refusal.next_step.ends_with('.'), "{path}: {refusal}");
        }
        assert!(place("/etc/sysctl.d/00-default.conf").is_ok(), "another program's folder");
    }
}
