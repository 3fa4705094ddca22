//! The plugin's own part of the configuration: which VNIC, where it is a delegate's. Everyone who may
//! write a NetworkAttachmentDefinition writes it, so nothing in it grants anything, and no path is read from it.

use cni::RequestedAddresses;
use serde::Deserialize;

/// What a configuration may say to this plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Conf {
    /// The VNIC that CNI_IFNAME is to be on. Without it, the pod's annotation says what it wants.
    pub vnic: Option<String>,
    /// Addresses that the pod wants of those of the VNIC.
    pub ips: RequestedAddresses,
    /// Whether connections leave by it unless another route is more specific.
    pub default_route: bool,
}

impl Conf {
    /// Its keys in a configuration.
    pub(crate) const KEYS: &'static [&'static str] = &["vnic", "ips", "defaultRoute"];
}
