//! The compute instance a node runs on.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Ocid, Vnic, words};

/// What the instance metadata service says about this instance, as far as networking needs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    /// The OCID of the instance.
    pub id: Ocid,
    /// The shape, for example `VM.Standard.E5.Flex` or `BM.GPU.H100.8`.
    pub shape: String,
    /// The canonical region name, for example `us-ashburn-1`.
    pub region: String,
    /// The most VNICs the shape may carry, the primary one included; absent on some shapes.
    pub max_vnic_attachments: Option<u32>,
    /// Custom metadata (`oke-native-pod-networking`, `oke-max-pods`, …), every value as text.
    pub metadata: BTreeMap<String, String>,
}

/// How VNICs reach the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MachineKind {
    /// A PCI device per VNIC, hot-plugged.
    Virtual,
    /// A VLAN on a physical port per VNIC; the operating system makes the link itself.
    BareMetal,
}

impl MachineKind {
    /// The kind of a machine with these VNICs, by the only reliable sign: the port index that bare metal alone reports.
    pub fn of(vnics: &[Vnic]) -> Self {
        if vnics.iter().any(|vnic| vnic.nic_index.is_some()) { Self::BareMetal } else { Self::Virtual }
    }
}

words!(MachineKind: Virtual = "virtual machine", BareMetal = "bare metal");
