//! The settings, validated: the only configuration that the rest of the crate sees.

#[cfg(test)]
pub(crate) mod fixture;
mod plugin_entry;

use std::path::{Path, PathBuf};

use thiserror::Error;
use vcn::Mtu;

pub(crate) use plugin_entry::{MAIN, OURS, PluginEntry, VNIC_ATTACH};

use crate::cli::{Directories, Options, StateDirectories, VnicAttach};
use crate::decide::PodNetwork;
use crate::record::backup;

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
    pub(crate) chain: Vec<PluginEntry>,
    /// The largest MTU of a pod's link; the VNIC's by default.
    pub pod_mtu: Option<Mtu>,
    /// Which pods may have extra interfaces.
    pub vnic_attach: VnicAttach,
    /// Where the runtime looks for CNI binaries, as seen from here.
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
#[expect(missing_docs, reason = "the message names each field")]
#[derive(Debug, Error)]
pub enum SettingsError {
    /// A directory is not an absolute path.
    #[error("{option} is {path}, which is not an absolute path", path = .path.display())]
    Relative { option: &'static str, path: PathBuf },
    /// Binaries would be installed over themselves.
    #[error("--cni-source-dir and --cni-bin-dir are both {}: nothing could be installed from there", .0.display())]
    SameDirectory(PathBuf),
    /// The list of plugins is invalid.
    #[error("--cni-chain is {text:?}: {reason}")]
    Chain { text: String, reason: String },
    /// IPv6 does not work with this MTU.
    #[error("--pod-mtu is {0}: IPv6 needs at least {MIN_MTU}")]
    PodMtu(u32),
}

impl Settings {
    /// Checks options as typed.
    ///
    /// # Errors
    /// When a directory is not an absolute path, source and target are the same, or a value is not valid.
    pub fn new(options: Options, state: StateDirectories) -> Result<Self, SettingsError> {
        let chain = PluginEntry::list(&options.cni_chain);
        let chain = chain.map_err(|reason| SettingsError::Chain { text: options.cni_chain.clone(), reason })?;
        if let Some(mtu) = options.pod_mtu.filter(|mtu| *mtu < MIN_MTU) {
            return Err(SettingsError::PodMtu(mtu));
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
            return Err(SettingsError::SameDirectory(source_dir));
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

    /// Our configuration's path.
    #[must_use]
    pub fn conflist(&self) -> PathBuf {
        self.cni_conf_dir.join(vcn::CONFLIST_FILE)
    }

    #[must_use]
    pub(crate) fn copied_conflist(&self) -> PathBuf {
        self.cni_conf_dir.join(vcn::COPIED_CONFLIST_FILE)
    }

    /// The directories that this program writes to.
    pub(crate) fn written_directories(&self) -> [PathBuf; 4] {
        let backups = self.data_dir.join(backup::DIRECTORY);
        [self.cni_bin_dir.clone(), self.cni_conf_dir.clone(), self.data_dir.clone(), backups]
    }

    /// Our plugin's entry and those behind it, whether or not their binaries exist.
    pub(crate) fn entries(&self) -> Vec<PluginEntry> {
        let main = PluginEntry::main(self.pod_mtu.map(|mtu| mtu.0));
        std::iter::once(main).chain(self.behind()).collect()
    }

    pub(crate) fn behind(&self) -> Vec<PluginEntry> {
        let added = PluginEntry::named(VNIC_ATTACH).filter(|_| self.has_vnic_attach() && !self.lists_vnic_attach());
        self.chain.iter().cloned().chain(added).collect()
    }

    fn has_vnic_attach(&self) -> bool {
        self.vnic_attach != VnicAttach::Off || self.lists_vnic_attach()
    }

    /// Whether `vnic-attach` belongs on a node where our pod network is installed, or another one. An older image does not
    /// have it; the plugin is then left out of the chain.
    #[must_use]
    pub fn places_vnic_attach(&self, install: bool) -> bool {
        let attach = if install { self.has_vnic_attach() } else { self.vnic_attach == VnicAttach::On };
        attach && self.source_dir.join(VNIC_ATTACH).exists()
    }

    pub(crate) fn lists_vnic_attach(&self) -> bool {
        self.chain.iter().any(|entry| entry.kind() == VNIC_ATTACH)
    }
}

fn absolute(option: &'static str, path: &Path) -> Result<(), SettingsError> {
    if path.is_absolute() { Ok(()) } else { Err(SettingsError::Relative { option, path: path.to_owned() }) }
}

fn same(one: &Path, other: &Path) -> bool {
    one == other || matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}
