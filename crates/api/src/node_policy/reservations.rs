//! What the kubelet of a node reserves and keeps free, in a NodePolicy.
#![expect(unreachable_pub, reason = "KubeSchema writes a public copy of each struct into a function")]

use std::collections::BTreeMap;

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// Reservations of a kubelet: at least one field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.systemReserved) || has(self.kubeReserved) || has(self.evictionHard)")
        .message("needs systemReserved, kubeReserved or evictionHard"),
    validation = Rule::new("[has(self.systemReserved) ? self.systemReserved : {}, has(self.kubeReserved) ? self.kubeReserved : {}].all(all, all.all(name, name in ['cpu', 'ephemeral-storage', 'memory', 'pid']))")
        .message("a kubelet reserves cpu, ephemeral-storage, memory and pid only"),
    validation = Rule::new("!has(self.evictionHard) || ['imagefs.available', 'imagefs.inodesFree', 'memory.available', 'nodefs.available', 'nodefs.inodesFree'].all(name, name in self.evictionHard) && self.evictionHard.all(name, name in ['imagefs.available', 'imagefs.inodesFree', 'memory.available', 'nodefs.available', 'nodefs.inodesFree', 'pid.available'])")
        .message("needs all of memory.available, nodefs.available, nodefs.inodesFree, imagefs.available and imagefs.inodesFree, and nothing else but pid.available")
        .field_path(".evictionHard")
)]
pub struct KubeletReservations {
    /// For programs of the operating system: cpu, memory, ephemeral-storage and pid, in quantities such as 500m or 1Gi; unchanged if
    /// absent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::quantities::<4>")]
    pub system_reserved: BTreeMap<String, String>,
    /// For the kubelet and the container runtime, in the same way; unchanged if absent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::quantities::<4>")]
    pub kube_reserved: BTreeMap<String, String>,
    /// The amounts below which the kubelet evicts pods at once, as quantities or percentages from 1% to 50%; unchanged if absent.
    /// All five signals of memory, nodefs and imagefs, and pid.available as needed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::quantities::<6>")]
    pub eviction_hard: BTreeMap<String, String>,
}

impl KubeletReservations {
    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        self.system_reserved.is_empty() && self.kube_reserved.is_empty() && self.eviction_hard.is_empty()
    }
}
