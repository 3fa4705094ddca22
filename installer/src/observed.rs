//! What is on the disk now: CNI configurations, binaries, and the versions that the binaries of the chain speak. Reading
//! changes nothing.

mod binaries;
mod conf_file;
mod conf_text;
#[cfg(test)]
mod tests;

pub(crate) use binaries::{BINARY_MODE, Binary, BinaryFound, ChainBinary};
pub use conf_file::ProvidedNetwork;
pub(crate) use conf_file::{ConfFile, Fault, conf_files};
pub(crate) use conf_text::{ConfAt, ConfText, PLUGINS, kind, plugins};

use crate::cli::VnicAttach;
use crate::decide::pods;
use crate::error::Error;
use crate::record::{ConfigurationRecord, Record};
use crate::settings::{MAIN, OURS, Settings, VNIC_ATTACH};

/// A node's disk, as far as the installer is concerned.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// The files that a runtime loads, in its order.
    pub(crate) conf_files: Vec<ConfFile>,
    pub(crate) conflist: ConfAt,
    /// Our binaries that are not in place.
    pub(crate) binaries: Vec<Binary>,
    /// The chain's binaries: our plugin, those of the settings, those that other programs added. Of another network's chain
    /// only `vnic-attach`.
    pub(crate) chain: Vec<ChainBinary>,
    /// Our copy of another network's configuration.
    pub(crate) copy: ConfAt,
    /// Our configuration, if nothing is to be installed.
    pub(crate) leftover: Option<Leftover>,
    pub(crate) failures: Vec<Error>,
}

/// What is left of our configuration on a node where nothing is to be installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Leftover {
    /// The file, by its contents when it was read.
    File(Vec<u8>),
    /// It cannot be removed now, and why.
    Blocked(String),
    /// Only the record of it: another program removed the file, or this program did and was killed.
    Record,
}

impl Observed {
    /// Reads everything that an installation (`install`) or a chained plugin needs.
    pub(crate) fn read(settings: &Settings, conf_files: Vec<ConfFile>, record: &Record, install: bool) -> Self {
        let mut observed = Self { conf_files, copy: ConfAt::settled(&settings.copied_conflist()), ..Self::default() };
        if !install {
            observed.leftover = Leftover::find(settings, record.conflist());
            if settings.vnic_attach != VnicAttach::On {
                return observed;
            }
        }
        for (name, _) in [(MAIN, install), (VNIC_ATTACH, settings.places_vnic_attach(install))].iter().filter(|it| it.1)
        {
            match binaries::to_install(settings, name) {
                Ok(binary) => observed.binaries.extend(binary),
                Err(error) => observed.failures.push(error),
            }
        }
        if install {
            observed.conflist = ConfAt::settled(&settings.conflist());
            observed.chain = binaries::chain(settings, observed.conflist.file());
        } else {
            observed.chain = binaries::guest(settings);
        }
        let ours = if install { vcn::CONFLIST_FILE } else { vcn::COPIED_CONFLIST_FILE };
        binaries::find_missing(settings, &mut observed.conf_files, ours);
        observed
    }
}

impl Leftover {
    fn find(settings: &Settings, known: Option<&ConfigurationRecord>) -> Option<Self> {
        match ConfAt::ours(&settings.conflist()) {
            ConfAt::File(file) if is_ours(&file, known) => {
                let pods = pods(settings).join("; ");
                Some(if pods.is_empty() { Self::File(file.contents) } else { Self::Blocked(pods) })
            }
            ConfAt::File(_) | ConfAt::Nothing => known.map(|_| Self::Record),
            ConfAt::Unread(why) => known.map(|_| Self::Blocked(format!("another program replaced it: {why}"))),
        }
    }
}

/// Whether a file with our configuration's name is our configuration: it names our plugin, or it is on record and damaged.
pub(crate) fn is_ours(found: &ConfText, known: Option<&ConfigurationRecord>) -> bool {
    let single = found.json.as_ref().ok().and_then(kind);
    match found.list() {
        Some(_) => found.lists(&OURS),
        None => single.map_or(known.is_some(), |kind| OURS.contains(&kind)),
    }
}
