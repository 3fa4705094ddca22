//! The settings, validated: the only configuration that the rest of the crate sees.

#[cfg(test)]
pub(crate) mod fixture;
mod plugin_entry;

use std::path::{Path, PathBuf};

use thiserror::Error;
use vcn::Mtu;

pub(crate) use plugin_entry::PluginEntry;
pub use plugin_entry::PluginListError;
pub(crate) use plugin_entry::{MAIN, OURS, VNIC_ATTACH};

use crate::cli::{DATA_DIR, Directories, ForeignPodSources, Options, VnicAttach};
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
    #[error("--cni-chain is {text:?}")]
    Chain {
        text: String,
        #[source]
        source: PluginListError,
    },
    /// IPv6 does not work with this MTU.
    #[error("--pod-mtu is {0}: IPv6 needs at least {MIN_MTU}")]
    PodMtu(u32),
}

impl Settings {
    /// Checks options as typed. State and data are in their usual directories.
    ///
    /// # Errors
    /// When a directory is not an absolute path, source and target are the same, or a value is not valid.
    pub fn new(options: Options) -> Result<Self, SettingsError> {
        let Directories { cni_bin_dir, cni_conf_dir, cni_source_dir: source_dir } = options.directories;
        let ForeignPodSources { cni_cache_dir, oke_state_dir } = options.foreign_pods;
        for (option, path) in [
            ("--cni-bin-dir", &cni_bin_dir),
            ("--cni-conf-dir", &cni_conf_dir),
            ("--cni-cache-dir", &cni_cache_dir),
            ("--oke-state-dir", &oke_state_dir),
            ("--cni-source-dir", &source_dir),
        ] {
            absolute(option, path)?;
        }
        if same(&source_dir, &cni_bin_dir) {
            return Err(SettingsError::SameDirectory(source_dir));
        }
        let chain = PluginEntry::list(&options.cni_chain);
        let chain = chain.map_err(|source| SettingsError::Chain { text: options.cni_chain.clone(), source })?;
        if let Some(mtu) = options.pod_mtu.filter(|mtu| *mtu < MIN_MTU) {
            return Err(SettingsError::PodMtu(mtu));
        }
        Ok(Self {
            pod_network: options.pod_network,
            takeover: options.cni_takeover,
            chain,
            pod_mtu: options.pod_mtu.map(Mtu),
            vnic_attach: options.vnic_attach,
            cni_bin_dir,
            cni_conf_dir,
            cni_cache_dir,
            oke_state_dir,
            source_dir,
            state_dir: vcn::STATE_DIR.into(),
            data_dir: DATA_DIR.into(),
        })
    }

    /// The same with state and data in other directories.
    ///
    /// # Errors
    /// When one is not an absolute path.
    pub fn with_state(self, state_dir: &Path, data_dir: &Path) -> Result<Self, SettingsError> {
        absolute("--state-dir", state_dir)?;
        absolute("--data-dir", data_dir)?;
        Ok(Self { state_dir: state_dir.to_owned(), data_dir: data_dir.to_owned(), ..self })
    }

    /// Our configuration's path.
    #[must_use]
    pub fn conflist(&self) -> PathBuf {
        self.cni_conf_dir.join(vcn::CONFLIST_FILE)
    }

    /// The path of our copy of another network's configuration.
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
        let mut main = PluginEntry::main();
        if let Some(Mtu(mtu)) = self.pod_mtu {
            main = main.with("mtu", mtu);
        }
        std::iter::once(main).chain(self.behind()).collect()
    }

    /// The entries behind our plugin's.
    pub(crate) fn behind(&self) -> Vec<PluginEntry> {
        let added = PluginEntry::named(VNIC_ATTACH).filter(|_| self.has_vnic_attach() && !self.lists_vnic_attach());
        self.chain.iter().cloned().chain(added).collect()
    }

    /// Whether `vnic-attach` belongs in our chain.
    pub(crate) fn has_vnic_attach(&self) -> bool {
        self.vnic_attach != VnicAttach::Off || self.lists_vnic_attach()
    }

    /// Whether `vnic-attach` belongs on a node where our pod network is installed, or another one. An older image does not
    /// have it; the plugin is then left out of the chain.
    #[must_use]
    pub fn places_vnic_attach(&self, install: bool) -> bool {
        let attach = if install { self.has_vnic_attach() } else { self.vnic_attach == VnicAttach::On };
        attach && self.source_dir.join(VNIC_ATTACH).exists()
    }

    /// Whether the chain lists it.
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
