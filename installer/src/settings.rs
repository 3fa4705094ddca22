//! The settings, validated: the only configuration that the rest of the crate sees.

use std::path::{Path, PathBuf};

use thiserror::Error;
use vcn::Mtu;

use crate::args::{DATA_DIR, Directories, Options, Witnesses};
use crate::entry::VNIC_ATTACH;
use crate::record::BEFORE;
use crate::signals::PodNetwork;
use crate::{Entry, EntryError};

/// The smallest MTU that IPv6 works with (RFC 8200 §5).
const MIN_MTU: u32 = 1280;

/// Where things are and what the operator wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Which pod network the operator says this is.
    pub pod_network: PodNetwork,
    /// Whether to install although OKE's own CNI is present.
    pub takeover: bool,
    /// The plugins behind ours, each where its binary exists.
    pub chain: Vec<Entry>,
    /// The largest MTU of a pod's link; the VNIC's when nothing is said.
    pub pod_mtu: Option<Mtu>,
    /// Somebody else's configuration, by its name in the directory, that `vnic-attach` is chained into where the pod
    /// network is not ours.
    pub chain_into: Option<String>,
    /// Where the runtime looks for CNI binaries, as seen from here.
    pub cni_bin_dir: PathBuf,
    /// Where the runtime looks for CNI configurations, as seen from here.
    pub cni_conf_dir: PathBuf,
    /// Where the runtime keeps what plugins answered, as seen from here.
    pub cni_cache_dir: PathBuf,
    /// Where OKE's own CNI keeps which addresses are used.
    pub oke_state_dir: PathBuf,
    /// Where the binaries to install come from.
    pub source_dir: PathBuf,
    /// State of this boot, shared with the plugins.
    pub state_dir: PathBuf,
    /// What must be known after a reboot: what we wrote, and what was there before.
    pub data_dir: PathBuf,
}

/// Why the options make no settings.
#[derive(Debug, Error)]
pub enum SettingsError {
    /// A directory is given relative to wherever the program happens to be started.
    #[error("{option} is {path}, which is not an absolute path", path = .path.display())]
    Relative {
        /// The option.
        option: &'static str,
        /// Its value.
        path: PathBuf,
    },
    /// Binaries would be installed over themselves.
    #[error("--source-dir and --cni-bin-dir are both {}: nothing could be installed from there", .0.display())]
    SameDirectory(PathBuf),
    /// The list of plugins is none.
    #[error("--chain is {text:?}")]
    Chain {
        /// Its value.
        text: String,
        /// What is wrong with it.
        #[source]
        source: EntryError,
    },
    /// Not the name of a list of plugins in the directory.
    #[error("--chain-into is {0:?}: name a file of --cni-conf-dir that ends in .conflist and is not ours")]
    ChainInto(String),
    /// An MTU that IPv6 does not work with.
    #[error("--pod-mtu is {0}: IPv6 needs at least {MIN_MTU}")]
    PodMtu(u32),
}

impl Settings {
    /// Checks options as typed. State and data are in their usual directories.
    ///
    /// # Errors
    /// When a directory is not an absolute path, source and target are the same, or a value makes no sense.
    pub fn new(options: Options) -> Result<Self, SettingsError> {
        let Directories { cni_bin_dir, cni_conf_dir, source_dir } = options.directories;
        let Witnesses { cni_cache_dir, oke_state_dir } = options.witnesses;
        for (option, path) in [
            ("--cni-bin-dir", &cni_bin_dir),
            ("--cni-conf-dir", &cni_conf_dir),
            ("--cni-cache-dir", &cni_cache_dir),
            ("--oke-state-dir", &oke_state_dir),
            ("--source-dir", &source_dir),
        ] {
            absolute(option, path)?;
        }
        if same(&source_dir, &cni_bin_dir) {
            return Err(SettingsError::SameDirectory(source_dir));
        }
        let chain = Entry::list(&options.chain);
        let chain = chain.map_err(|source| SettingsError::Chain { text: options.chain.clone(), source })?;
        // A manifest that leaves a value empty means "not set".
        let chain_into = options.chain_into.filter(|name| !name.is_empty());
        if let Some(name) = chain_into.as_ref().filter(|name| !is_foreign_list(name)) {
            return Err(SettingsError::ChainInto(name.clone()));
        }
        if let Some(mtu) = options.pod_mtu.filter(|mtu| *mtu < MIN_MTU) {
            return Err(SettingsError::PodMtu(mtu));
        }
        Ok(Self {
            pod_network: options.pod_network,
            takeover: options.takeover,
            chain,
            pod_mtu: options.pod_mtu.map(Mtu),
            chain_into,
            cni_bin_dir,
            cni_conf_dir,
            cni_cache_dir,
            oke_state_dir,
            source_dir,
            state_dir: vcn::STATE_DIR.into(),
            data_dir: DATA_DIR.into(),
        })
    }

    /// The same with state and data elsewhere. Plugins are told where the state is.
    ///
    /// # Errors
    /// When one is not an absolute path.
    pub fn keeping(self, state_dir: &Path, data_dir: &Path) -> Result<Self, SettingsError> {
        absolute("--state-dir", state_dir)?;
        absolute("--data-dir", data_dir)?;
        Ok(Self { state_dir: state_dir.to_owned(), data_dir: data_dir.to_owned(), ..self })
    }

    /// Our configuration's path.
    #[must_use]
    pub fn conflist(&self) -> PathBuf {
        self.cni_conf_dir.join(vcn::CONFLIST_FILE)
    }

    /// The directories that we write to.
    pub(crate) fn written_directories(&self) -> [PathBuf; 4] {
        let before = self.data_dir.join(BEFORE);
        [self.cni_bin_dir.clone(), self.cni_conf_dir.clone(), self.data_dir.clone(), before]
    }

    /// Our plugin's entry and those behind it, were every binary there.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let mut main = self.at_state_dir(Entry::main());
        if let Some(Mtu(mtu)) = self.pod_mtu {
            main = main.with("mtu", mtu);
        }
        let behind = self.chain.iter().cloned();
        let behind = behind.map(|entry| if entry.kind() == VNIC_ATTACH { self.at_state_dir(entry) } else { entry });
        std::iter::once(main).chain(behind).collect()
    }

    /// What is chained into somebody else's configuration.
    pub(crate) fn guest(&self) -> Option<Entry> {
        Entry::named(VNIC_ATTACH).map(|entry| self.at_state_dir(entry))
    }

    fn at_state_dir(&self, entry: Entry) -> Entry {
        match self.state_dir.to_str() {
            Some(text) if text != vcn::STATE_DIR => entry.with("stateDir", text),
            _ => entry,
        }
    }
}

fn absolute(option: &'static str, path: &Path) -> Result<(), SettingsError> {
    if path.is_absolute() { Ok(()) } else { Err(SettingsError::Relative { option, path: path.to_owned() }) }
}

fn same(one: &Path, other: &Path) -> bool {
    one == other || matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

fn is_foreign_list(name: &str) -> bool {
    name.ends_with(".conflist") && !name.contains('/') && name != vcn::CONFLIST_FILE
}
