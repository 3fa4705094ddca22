//! What is on the disk now: CNI configurations, binaries, and the versions that the binaries of the chain speak. Reading
//! changes nothing.

mod binaries;
mod conf_file;
mod conf_text;
mod leftover;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) use binaries::{Binary, BinaryFound, ChainBinary, EntryOrigin};
pub use conf_file::ProvidedNetwork;
pub(crate) use conf_file::conf_files;
pub(crate) use conf_file::{ConfFile, Contents};
pub(crate) use conf_text::{ConfAt, ConfText, kind, parse};
pub(crate) use leftover::{Leftover, is_ours};

use crate::cli::VnicAttach;
use crate::error::Error;
use crate::files::is_temporary;
use crate::record::Record;
use crate::settings::Settings;
use crate::versions::{Answer, VersionCache};

/// A node's disk, as far as the installer is concerned.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// The files that a runtime loads, in its order.
    pub(crate) conf_files: Vec<ConfFile>,
    /// What has our configuration's name.
    pub(crate) conflist: ConfAt,
    /// Directories of the runtime that do not exist.
    pub(crate) missing_directories: Vec<PathBuf>,
    /// Our binaries, source and target.
    pub(crate) binaries: Vec<Binary>,
    /// The chain's binaries: our plugin, those of the settings, those that other programs added.
    pub(crate) chain: Vec<ChainBinary>,
    /// The configuration of another network that `vnic-attach` is to be chained to.
    pub(crate) source: Option<Source>,
    /// Our copy of it.
    pub(crate) copy: ConfAt,
    /// The answer of the plugin that is chained to it.
    pub(crate) guest: Option<Answer>,
    /// The plugins without a binary of each usable configuration before our one, up to the first that has all.
    pub(crate) missing_before: BTreeMap<String, Vec<String>>,
    /// Our configuration, if nothing is to be installed.
    pub(crate) leftover: Option<Leftover>,
    /// TemporaryFile files of killed installers.
    pub(crate) stale: Vec<PathBuf>,
    /// What could not be read.
    pub(crate) failures: Vec<Error>,
}

/// Another program's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// Its name in the directory.
    pub(crate) name: String,
    /// The file.
    pub(crate) at: ConfAt,
}

impl Source {
    /// The one that a runtime would use without our copy.
    fn among(settings: &Settings, files: &[ConfFile]) -> Option<Self> {
        let first = files.iter().find(|file| file.gives_another_network())?;
        Some(Self {
            name: first.name.clone(),
            at: ConfAt::settled(&settings.cni_conf_dir.join(&first.name), ConfAt::any),
        })
    }
}

impl Observed {
    /// Reads everything that an installation (`install`) or a chained plugin needs.
    pub(crate) fn read(
        settings: &Settings,
        conf_files: Vec<ConfFile>,
        record: &Record,
        install: bool,
        versions: &mut VersionCache,
    ) -> Self {
        let guest_wanted = settings.vnic_attach == VnicAttach::On && !install;
        let source = guest_wanted.then(|| Source::among(settings, &conf_files)).flatten();
        let copy = ConfAt::settled(&settings.copied_conflist(), ConfAt::ours);
        let mut observed = Self { conf_files, source, copy, ..Self::default() };
        if !install {
            observed.leftover = Leftover::find(settings, record);
        }
        if !install && !guest_wanted {
            return observed;
        }
        observed.stale = settings.written_directories().iter().flat_map(|path| stale_in(path)).collect();
        let directories = [&settings.cni_bin_dir, &settings.cni_conf_dir];
        observed.missing_directories = directories.into_iter().filter(|path| !path.exists()).cloned().collect();
        for binary in binaries::ours(settings, install) {
            match binary {
                Ok(binary) => observed.binaries.push(binary),
                Err(error) => observed.failures.push(error),
            }
        }
        if install {
            observed.conflist = ConfAt::settled(&settings.conflist(), ConfAt::ours);
            observed.chain = binaries::chain(settings, observed.conflist.file(), versions);
        } else {
            observed.guest = Some(binaries::guest(settings, versions));
        }
        let ours = if install { vcn::CONFLIST_FILE } else { vcn::COPIED_CONFLIST_FILE };
        observed.missing_before = binaries::missing_before(settings, &observed.conf_files, ours);
        observed
    }
}

/// Our temporary files in a directory. A directory that cannot be read has none.
pub(crate) fn stale_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_temporary));
    let mut paths: Vec<_> = ours.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}
