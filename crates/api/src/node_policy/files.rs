//! Files of the host in a NodePolicy: the closed list of folders, with the permit that each needs and the unit that reads it.
#![expect(unreachable_pub, reason = "KubeSchema writes a public copy of each struct into a function")]

use std::sync::LazyLock;

use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use vcn::words;

/// The most files of a policy.
pub const FILES_MAX: usize = 16;
/// The most bytes of all contents of a policy.
pub const CONTENT_MAX: usize = 8 * 1024;
/// The longest name of a file.
pub const FILE_NAME_MAX: usize = 64;

/// A file of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(
    validation = Rule::new("!(self.path.contains('kubelet') && (self.path.endsWith('/00-default.conf') || self.path.endsWith('/90-oke-node-manager.conf')))")
        .message("OKE or this project writes a file of this name: use another one")
        .field_path(".path")
)]
pub struct HostFile {
    /// Its path, in one of the folders of docs/node-policies.md.
    #[schemars(schema_with = "path")]
    pub path: String,
    /// Its content: lines of ASCII text, each with its line end. All contents of a policy have at most 8192 bytes.
    #[schemars(schema_with = "content")]
    pub content: String,
    /// Its permission bits, in quotation marks: "0644", "0640" or "0600"; "0644" if absent.
    #[serde(default, skip_serializing_if = "FileMode::is_default")]
    pub mode: FileMode,
}

/// Permission bits: no file is executable, and only root writes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FileMode {
    /// Each user reads it.
    #[default]
    #[serde(rename = "0644")]
    AllRead,
    /// Users of root's group read it.
    #[serde(rename = "0640")]
    GroupReads,
    /// Root alone reads it.
    #[serde(rename = "0600")]
    RootReads,
}

/// Units that a policy may restart, because it changed their files. They are restarted in this order: the kubelet last, because the
/// others are what it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum HostUnit {
    /// Sets the kernel settings of sysctl.d.
    #[serde(rename = "systemd-sysctl.service")]
    SystemdSysctl,
    /// Keeps the time.
    #[serde(rename = "chronyd.service")]
    Chronyd,
    /// OCI's agent.
    #[serde(rename = "oracle-cloud-agent.service")]
    OracleCloudAgent,
    /// Configures links.
    #[serde(rename = "NetworkManager.service")]
    NetworkManager,
    /// A container runtime.
    #[serde(rename = "crio.service")]
    Crio,
    /// A container runtime.
    #[serde(rename = "containerd.service")]
    Containerd,
    /// The kubelet.
    #[serde(rename = "kubelet.service")]
    Kubelet,
}

/// What the cluster's owner must permit before a policy may name a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FileGrant {
    /// Files that configure programs, and name no program to run.
    HostFiles,
    /// Files that decide which programs run as root.
    HostCode,
}

words!(FileMode: AllRead = "0644", GroupReads = "0640", RootReads = "0600");
words!(
    HostUnit: SystemdSysctl = "systemd-sysctl.service",
    Chronyd = "chronyd.service",
    OracleCloudAgent = "oracle-cloud-agent.service",
    NetworkManager = "NetworkManager.service",
    Crio = "crio.service",
    Containerd = "containerd.service",
    Kubelet = "kubelet.service",
);
words!(FileGrant: HostFiles = "hostFiles", HostCode = "hostCode");

/// A folder of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostFolder {
    /// The absolute path on the host.
    pub path: &'static str,
    /// The end of its files' names: others are not read.
    pub suffix: &'static str,
    /// What the cluster's owner must permit before a policy may have files in this folder.
    pub grant: FileGrant,
    /// The unit that reads its files when it starts; none if each program reads them.
    pub unit: Option<HostUnit>,
}

const fn folder(path: &'static str, suffix: &'static str, grant: FileGrant, unit: Option<HostUnit>) -> HostFolder {
    HostFolder { path, suffix, grant, unit }
}

/// The kubelet's folder of drop-ins, if its `--config-dir` names it.
pub const KUBELET_FOLDER: &str = "/etc/kubernetes/kubelet.conf.d";
/// The folder that systemd-sysctl reads.
pub const SYSCTL_FOLDER: &str = "/etc/sysctl.d";
/// Drop-ins of a unit are in a folder `UNIT.d` below this one.
pub const SYSTEMD_FOLDER: &str = "/etc/systemd/system";
/// The end of drop-ins' names.
pub const DROP_IN_SUFFIX: &str = ".conf";

/// The folders, but for drop-ins of units.
///
/// The runtimes' folders need `hostCode`: `runtime_path`, `hooks_dir` and `BinaryName` there name programs that run as root.
pub const HOST_FOLDERS: &[HostFolder] = &[
    folder("/etc/NetworkManager/conf.d", ".conf", FileGrant::HostFiles, Some(HostUnit::NetworkManager)),
    folder("/etc/chrony.d", ".conf", FileGrant::HostFiles, Some(HostUnit::Chronyd)),
    folder("/etc/chrony/conf.d", ".conf", FileGrant::HostFiles, Some(HostUnit::Chronyd)),
    folder("/etc/containerd/conf.d", ".toml", FileGrant::HostCode, Some(HostUnit::Containerd)),
    folder("/etc/crio/crio.conf.d", ".conf", FileGrant::HostCode, Some(HostUnit::Crio)),
    folder(KUBELET_FOLDER, ".conf", FileGrant::HostCode, Some(HostUnit::Kubelet)),
    folder("/etc/modprobe.d", ".conf", FileGrant::HostCode, None),
    folder("/etc/security/limits.d", ".conf", FileGrant::HostFiles, None),
    folder(SYSCTL_FOLDER, ".conf", FileGrant::HostFiles, Some(HostUnit::SystemdSysctl)),
    folder("/etc/udev/rules.d", ".rules", FileGrant::HostCode, None),
];

impl FileMode {
    /// The permission bits as `chmod` takes them, such as 0o644.
    pub const fn bits(self) -> u32 {
        match self {
            Self::AllRead => 0o644,
            Self::GroupReads => 0o640,
            Self::RootReads => 0o600,
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it by reference")]
    const fn is_default(&self) -> bool {
        matches!(self, Self::AllRead)
    }
}

impl HostUnit {
    /// Whether the node may become unreachable if it does not start again: then no Pod can repair it.
    pub const fn is_guarded(self) -> bool {
        matches!(self, Self::NetworkManager | Self::Crio | Self::Containerd | Self::Kubelet)
    }
}

/// The paths of files: a folder, and a name that its program reads. No character of a name means anything to systemd or a shell.
static PATHS: LazyLock<String> = LazyLock::new(|| {
    let in_folder = |folder: &str, suffix: &str| {
        let rest = FILE_NAME_MAX - suffix.len() - 1;
        let quoted = |text: &str| text.replace("[.]", ".").replace('.', "[.]");
        format!("{}/[A-Za-z0-9][A-Za-z0-9._-]{{0,{rest}}}{}", quoted(folder), quoted(suffix))
    };
    let units: Vec<&str> = HostUnit::ALL.iter().map(|unit| unit.as_str()).collect();
    let drop_ins = in_folder(&format!("{SYSTEMD_FOLDER}/({})[.]d", units.join("|")), DROP_IN_SUFFIX);
    let folders = HOST_FOLDERS.iter().map(|folder| in_folder(folder.path, folder.suffix));
    let paths: Vec<String> = folders.chain([drop_ins]).collect();
    format!("^({})$", paths.join("|"))
});

fn path(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": 128, "pattern": PATHS.as_str() })
}

fn content(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": CONTENT_MAX, "pattern": "^([\\t -~]*\\n)+$" })
}
