//! Settings for tests.

use std::path::Path;

use crate::cli::VnicAttach;
use crate::decide::PodNetwork;
use crate::settings::{PluginEntry, Settings};

/// Settings whose every directory is in one.
pub(crate) fn settings_in(root: &Path) -> Settings {
    Settings {
        pod_network: PodNetwork::Auto,
        takeover: false,
        chain: PluginEntry::list("portmap").unwrap(),
        pod_mtu: None,
        vnic_attach: VnicAttach::Auto,
        cni_bin_dir: root.join("bin"),
        cni_conf_dir: root.join("net.d"),
        cni_cache_dir: root.join("cache"),
        oke_state_dir: root.join("shm"),
        source_dir: root.join("source"),
        state_dir: vcn::STATE_DIR.into(),
        data_dir: root.join("lib"),
    }
}
