//! The settings, validated: the only configuration that the rest of the crate sees.

#[cfg(test)]
pub(crate) mod fixture;
mod plugin_entry;

use std::path::{Path, PathBuf};

use serde_json::Value;
use thiserror::Error;
use vcn::Mtu;

use plugin_entry::main_entry;
pub(crate) use plugin_entry::{MAIN, OURS, VNIC_ATTACH, vnic_attach_entry};

use crate::args::{Directories, Options, StateDirectories, VnicAttach};
use crate::libcni::kind;
use crate::record::backup;
use crate::signals::PodNetwork;

/// The smallest MTU that IPv6 works with (RFC 8200 §5).
const MIN_MTU: u32 = 1280;

/// Where things are and what the operator wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Which pod network the operator says this is.
    pub pod_network: PodNetwork,
    /// Whether to install although OKE's own CNI is present.
    pub takeover: bool,
    /// The plugins after our own, each if its binary exists.
    pub(crate) chain: Vec<Value>,
    /// The largest MTU of a pod's link; the VNIC's by default.
    pub pod_mtu: Option<Mtu>,
    /// Which pods may have extra interfaces.
    pub vnic_attach: VnicAttach,
    /// Where the runtime finds CNI binaries, as seen from here.
    pub cni_bin_dir: PathBuf,
    /// The runtime's directory of CNI configurations, as mounted here.
    pub cni_conf_dir: PathBuf,
    /// Where the runtime caches results of plugins, as seen from here.
    pub cni_cache_dir: PathBuf,
    /// Where OKE's own CNI keeps which addresses are used.
    pub oke_state_dir: PathBuf,
    /// Where the binaries to install come from.
    pub source_dir: PathBuf,
    /// State of this boot, shared with the plugins.
    pub state_dir: PathBuf,
    /// State across reboots: the record, and copies of what was there before.
    pub data_dir: PathBuf,
}

/// Why options are refused.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct SettingsError(String);

impl Settings {
    /// Checks options as typed.
    ///
    /// # Errors
    /// When a directory is not an absolute path, source and target are the same, or a value is not valid.
    pub fn new(options: Options, state: StateDirectories) -> Result<Self, SettingsError> {
        let chain = plugin_entry::entries(&options.cni_chain);
        let chain = chain.map_err(|why| SettingsError(format!("--cni-chain is {:?}: {why}", options.cni_chain)))?;
        if let Some(mtu) = options.pod_mtu.filter(|mtu| *mtu < MIN_MTU) {
            return Err(SettingsError(format!("--pod-mtu is {mtu}: IPv6 needs at least {MIN_MTU}")));
        }
        let settings = Self {
            pod_network: options.pod_network,
            takeover: options.cni_takeover,
            chain,
            pod_mtu: options.pod_mtu.map(Mtu),
            vnic_attach: options.vnic_attach,
            cni_cache_dir: options.cni_cache_dir,
            oke_state_dir: options.oke_state_dir,
            ..Self::to_uninstall(options.directories, state)?
        };
        absolute("--cni-cache-dir", &settings.cni_cache_dir)?;
        absolute("--oke-state-dir", &settings.oke_state_dir)?;
        Ok(settings)
    }

    /// Checks directories: uninstalling needs nothing else.
    pub(crate) fn to_uninstall(places: Directories, state: StateDirectories) -> Result<Self, SettingsError> {
        let Directories { cni_bin_dir, cni_conf_dir, cni_source_dir: source_dir } = places;
        let StateDirectories { state_dir, data_dir } = state;
        for (option, path) in [
            ("--cni-bin-dir", &cni_bin_dir),
            ("--cni-conf-dir", &cni_conf_dir),
            ("--cni-source-dir", &source_dir),
            ("--state-dir", &state_dir),
            ("--data-dir", &data_dir),
        ] {
            absolute(option, path)?;
        }
        if same(&source_dir, &cni_bin_dir) {
            let both = format!("--cni-source-dir and --cni-bin-dir are both {}", source_dir.display());
            return Err(SettingsError(format!("{both}: nothing could be installed from there")));
        }
        Ok(Self {
            pod_network: PodNetwork::Auto,
            takeover: false,
            chain: Vec::new(),
            pod_mtu: None,
            vnic_attach: VnicAttach::Auto,
            cni_bin_dir,
            cni_conf_dir,
            cni_cache_dir: PathBuf::new(),
            oke_state_dir: PathBuf::new(),
            source_dir,
            state_dir,
            data_dir,
        })
    }

    /// The path of our configuration.
    #[must_use]
    pub fn conflist(&self) -> PathBuf {
        self.cni_conf_dir.join(vcn::CONFLIST_FILE)
    }

    pub(crate) fn copied_conflist(&self) -> PathBuf {
        self.cni_conf_dir.join(vcn::COPIED_CONFLIST_FILE)
    }

    /// The directories that this program writes to.
    pub(crate) fn written_directories(&self) -> [PathBuf; 4] {
        let backups = self.data_dir.join(backup::DIRECTORY);
        [self.cni_bin_dir.clone(), self.cni_conf_dir.clone(), self.data_dir.clone(), backups]
    }

    /// The entries of our chain: our plugin's and those behind it. Unless `vnic-attach` is listed by name, it is in the chain where
    /// the image has it.
    pub(crate) fn entries(&self) -> Vec<Value> {
        let added = (!self.lists_vnic_attach() && self.places_vnic_attach(true)).then(vnic_attach_entry);
        let main = main_entry(self.pod_mtu.map(|mtu| mtu.0));
        [main].into_iter().chain(self.chain.iter().cloned()).chain(added).collect()
    }

    /// Whether `vnic-attach` belongs on a node where our pod network is installed, or another one. An older image does not
    /// have it; the plugin is then left out of the chain.
    #[must_use]
    pub fn places_vnic_attach(&self, install: bool) -> bool {
        let is_placed = match self.vnic_attach {
            VnicAttach::On => true,
            VnicAttach::Auto => install,
            VnicAttach::Off => install && self.lists_vnic_attach(),
        };
        is_placed && self.source_dir.join(VNIC_ATTACH).exists()
    }

    fn lists_vnic_attach(&self) -> bool {
        self.chain.iter().any(|entry| kind(entry) == Some(VNIC_ATTACH))
    }
}

fn absolute(option: &str, path: &Path) -> Result<(), SettingsError> {
    let refused = || SettingsError(format!("{option} is {}, which is not an absolute path", path.display()));
    path.is_absolute().then_some(()).ok_or_else(refused)
}

fn same(one: &Path, other: &Path) -> bool {
    one == other || matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}
