//! What is on the disk now: CNI configurations, and the versions that the binaries of the chain speak. Reading changes nothing.

mod binaries;
mod conf_file;
mod conf_text;
mod drop_ins;
#[cfg(test)]
mod tests;

pub(crate) use binaries::{ChainBinary, chain, guest, missing};
pub use conf_file::ProvidedNetwork;
pub(crate) use conf_file::{ConfFile, Fault, conf_files};
pub(crate) use conf_text::{ConfAt, ConfText, plugins};
pub(crate) use drop_ins::drop_ins;

use crate::libcni::kind;
use crate::record::ConfigurationRecord;
use crate::settings::{OURS, VNIC_ATTACH};

/// Whether a file with our configuration's name is our configuration: it names our plugin, or it is damaged, or it is on record and
/// names none.
pub(crate) fn is_ours(found: &ConfText, known: Option<&ConfigurationRecord>) -> bool {
    let document = found.json.as_ref().ok().filter(|_| !found.is_damaged());
    let single = document.filter(|_| found.list().is_none());
    let listed = document.into_iter().flat_map(plugins);
    let mut kinds = single.into_iter().chain(listed).filter_map(kind).peekable();
    if kinds.peek().is_none() { known.is_some() || document.is_none() } else { kinds.any(|kind| OURS.contains(&kind)) }
}

/// The same of a file with the name of our copy: no other program lists our plugin under this name.
pub(crate) fn is_copy(found: &ConfText, is_recorded: bool) -> bool {
    is_recorded || found.lists(&[VNIC_ATTACH]) || found.is_damaged()
}
