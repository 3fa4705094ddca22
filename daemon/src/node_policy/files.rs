//! Files of the host by NodePolicies: compares them through read-only mounts, and leaves the order for the Pod that writes them. The agent
//! itself never writes a file of the host.

use std::collections::BTreeMap;
use std::io;

use installer::host_files::{CONFIRMATION, FOLDER, Host, ORDER, RECORD};
use ipam::{read_state, write_atomically};
use thiserror::Error;
use tunables::NodeDocument;
use tunables::files::compare::{paths, unreadable};
use tunables::files::folders::locate;
use tunables::files::{FileComparison, FileConfirmation, FileOrder, ObservedFile, compare};

use crate::settings::Settings;

/// Why a confirmation is refused.
#[derive(Debug, Error)]
pub(crate) enum ConfirmationRefused {
    #[error("the confirmation cannot be parsed")]
    Invalid(#[from] serde_json::Error),
    #[error("no change of the order {0} waits for its confirmation")]
    NotPending(String),
    #[error("{0}")]
    Record(String),
    #[error("write {CONFIRMATION}")]
    Write(#[from] io::Error),
}

impl ConfirmationRefused {
    /// The HTTP status of the reply.
    pub(crate) const fn status(&self) -> u16 {
        match self {
            Self::Invalid(_) => 400,
            Self::NotPending(_) => 409,
            Self::Record(_) | Self::Write(_) => 500,
        }
    }
}

/// What the host has, as this container sees it.
pub(super) fn host(settings: &Settings) -> Host {
    Host::new(&settings.host_root, &settings.data_dir.join(FOLDER))
}

/// Compares, and leaves the order. The error is about one of our own files.
pub(super) fn compare_files(host: &Host, document: &NodeDocument) -> (FileComparison, Option<(&'static str, String)>) {
    let record = match host.record() {
        Ok(record) => record,
        Err(error) => return (unreadable(document, &error), Some((RECORD, error))),
    };
    let is_mounted = |path: &str| locate(path).is_ok_and(|place| host.has_folder(place.folder));
    let seen = paths(document, &record).into_iter().filter(|path| is_mounted(path));
    let observed: BTreeMap<String, ObservedFile> = seen.map(|path| (path.clone(), host.observe(&path))).collect();
    let comparison = compare(document, &record, &observed, |folder| host.has_folder(folder));
    let error = comparison.answer.as_ref().and_then(|_| leave_order(host, document).err());
    (comparison, error.map(|error| (ORDER, error.to_string())))
}

/// Whether a comparison must be repeated soon: a Pod changes files, or is about to.
pub(super) fn is_unsettled(comparison: &FileComparison) -> bool {
    comparison.answer.as_ref().is_some_and(|answer| answer.state.is_unsettled())
}

fn leave_order(host: &Host, document: &NodeDocument) -> io::Result<()> {
    let (text, _) = FileOrder::of(document).to_text();
    let path = host.data(ORDER);
    if read_state(&path).is_ok_and(|written| written == text) {
        return Ok(());
    }
    host.make_data()?;
    write_atomically(&path, &text)
}

/// Accepts the leader's confirmation that the node is Ready after a change.
pub(super) fn confirm(host: &Host, body: &[u8]) -> Result<(), ConfirmationRefused> {
    let FileConfirmation { order } = serde_json::from_slice(body)?;
    let record = host.record().map_err(ConfirmationRefused::Record)?;
    let is_pending = record.pending.is_some_and(|pending| pending.order == order && pending.is_proven);
    if !is_pending {
        return Err(ConfirmationRefused::NotPending(vcn::excerpt(&vcn::printable(&order), 64).into_owned()));
    }
    Ok(write_atomically(&host.data(CONFIRMATION), order.as_bytes())?)
}

#[cfg(test)]
mod tests;
