//! The settings, validated: the only configuration that the rest of the crate sees.

use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::args::Options;

/// Where things are and what the operator wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Which pod network the operator says this is.
    pub pod_network: PodNetwork,
    /// Whether to install although OKE's own CNI is present.
    pub takeover: bool,
    /// Whether host ports are wanted: puts `portmap` into the chain where its binary exists.
    pub portmap: bool,
    /// Where the runtime looks for CNI binaries, as seen from here.
    pub cni_bin_dir: PathBuf,
    /// Where the runtime looks for CNI configurations, as seen from here.
    pub cni_conf_dir: PathBuf,
    /// Where the binaries to install come from.
    pub source_dir: PathBuf,
}

/// Whose pod network this is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum PodNetwork {
    /// The signals decide.
    #[default]
    Auto,
    /// VCN-native pod networking, whatever the signals say.
    VcnNative,
    /// Not ours, whatever the signals say.
    None,
}

/// Why the options make no settings.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
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
}

impl Settings {
    /// Checks options as typed.
    ///
    /// # Errors
    /// When a directory is not an absolute path, or source and target are the same.
    pub fn new(options: Options) -> Result<Self, SettingsError> {
        for (option, path) in [
            ("--cni-bin-dir", &options.cni_bin_dir),
            ("--cni-conf-dir", &options.cni_conf_dir),
            ("--source-dir", &options.source_dir),
        ] {
            if !path.is_absolute() {
                return Err(SettingsError::Relative { option, path: path.clone() });
            }
        }
        if same(&options.source_dir, &options.cni_bin_dir) {
            return Err(SettingsError::SameDirectory(options.source_dir));
        }
        Ok(Self {
            pod_network: options.pod_network,
            takeover: options.takeover,
            portmap: options.portmap,
            cni_bin_dir: options.cni_bin_dir,
            cni_conf_dir: options.cni_conf_dir,
            source_dir: options.source_dir,
        })
    }

    /// Our configuration's path.
    #[must_use]
    pub fn conflist(&self) -> PathBuf {
        self.cni_conf_dir.join(vcn::CONFLIST_FILE)
    }
}

fn same(one: &Path, other: &Path) -> bool {
    one == other || matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}
