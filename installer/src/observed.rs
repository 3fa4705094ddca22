//! What is on the disk now: CNI configurations, and the versions that the binaries of the chain speak. Reading changes nothing.

mod binaries;
mod conf_file;
mod conf_text;
#[cfg(test)]
mod tests;

pub(crate) use binaries::{ChainBinary, chain, guest, missing};
pub use conf_file::ProvidedNetwork;
pub(crate) use conf_file::{ConfFile, Fault, conf_files};
pub(crate) use conf_text::{ConfAt, ConfText, PLUGINS, kind, plugins};

use crate::record::ConfigurationRecord;
use crate::settings::OURS;

/// Whether a file with our configuration's name is our configuration: it names our plugin, or it is on record and damaged.
pub(crate) fn is_ours(found: &ConfText, known: Option<&ConfigurationRecord>) -> bool {
    let single = found.json.as_ref().ok().and_then(kind);
    match found.list() {
        Some(_) => found.lists(&OURS),
        None => single.map_or(known.is_some(), |kind| OURS.contains(&kind)),
    }
}
