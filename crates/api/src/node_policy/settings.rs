//! The settings of a NodePolicy: at most 3 KiB, or 10.5 KiB with files, because the status holds a second copy for a rollback.
#![expect(unreachable_pub, reason = "KubeSchema writes a public copy of each struct into a function")]

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::node_policy::files::{HostFile, HostUnit};
use crate::node_policy::links::LinkSettings;
use crate::node_policy::reservations::KubeletReservations;
use crate::node_policy::size;
use crate::schema;

/// What nodes must have: at least one field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
#[x_kube(
    validation = Rule::new("has(self.sysctls) || has(self.transparentHugePages) || has(self.links) || has(self.rootDisk) || has(self.files) || has(self.kubelet)")
        .message("needs sysctls, transparentHugePages, links, rootDisk, files or kubelet"),
    validation = Rule::new("!has(self.restart) || has(self.files) || has(self.kubelet)").message("restart needs files or kubelet").field_path(".restart"),
    validation = Rule::new("!has(self.files) || self.files.map(f, size(f.content)).sum() <= 8192")
        .message("are too large: all contents have at most 8192 bytes")
        .field_path(".files"),
    validation = Rule::new("!has(self.sysctls) || self.sysctls.all(key, key.matches('^[a-z0-9_]+([.][A-Za-z0-9_-]+)+$'))")
        .message("a key is written with periods, such as vm.max_map_count")
        .field_path(".sysctls"),
    validation = Rule::new(size::settings().as_str()).message("is too large: settings without files take at most 3072 bytes as JSON"),
    validation = Rule::new(size::with_files().as_str()).message("is too large: settings with files take at most 10752 bytes as JSON")
)]
pub struct NodeSettings {
    /// Kernel settings by key, such as vm.max_map_count, at most 64; none if absent. docs/node-policies.md lists the keys with their
    /// scope: most keys that begin with `net.` apply to the host's network only, not to pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::sysctls::<64>")]
    pub sysctls: BTreeMap<String, String>,
    /// Transparent huge pages; unchanged if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transparent_huge_pages: Option<HugePages>,
    /// Options of network links, at most 8 entries; none if absent. If two select a link, the first one applies, option by option.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "atomic"))]
    pub links: Vec<LinkSettings>,
    /// Grow: a root file system that is smaller than its boot volume grows by a NodeTask, within the rollout's limits; unchanged if
    /// absent. Nothing is undone later. Needs the verb grow-root-disk on nodetasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_disk: Option<RootDisk>,
    /// Files of the host, at most 16; none if absent. They need the verb host-files or host-code on nodepolicies, and the chart's value
    /// of that name. A file that no policy names any more gets its earlier content back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["path"]))]
    pub files: Vec<HostFile>,
    /// Units that may restart when their files change; none if absent. Files of kubelet, crio, containerd and NetworkManager need their
    /// unit here; others keep the earlier files until they restart for another reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 7), extend("x-kubernetes-list-type" = "set"))]
    pub restart: Vec<HostUnit>,
    /// What the kubelet reserves for the system and keeps free; unchanged if absent. It needs the verb host-code, and kubelet.service in
    /// restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<KubeletReservations>,
}

/// Transparent huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct HugePages {
    /// For which memory the kernel uses them: always, madvise (where a program requests them) or never.
    pub enabled: HugePageMode,
}

/// For which memory the kernel uses transparent huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HugePageMode {
    /// All of it.
    Always,
    /// Where a program requests them.
    Madvise,
    /// None.
    Never,
}

/// What happens to a root disk with unused space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RootDisk {
    /// Partition, volume and file system grow to the boot volume's size.
    Grow,
}

vcn::words!(HugePageMode: Always = "always", Madvise = "madvise", Never = "never");

impl NodeSettings {
    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        let has_items = !self.sysctls.is_empty() || self.transparent_huge_pages.is_some() || !self.links.is_empty();
        !has_items && self.root_disk.is_none() && !self.has_files()
    }

    /// Whether a program must write files on the host for them.
    pub fn has_files(&self) -> bool {
        !self.files.is_empty() || self.kubelet.is_some()
    }
}
