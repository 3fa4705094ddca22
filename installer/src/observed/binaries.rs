//! The CNI versions that each binary of a chain speaks.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{ConfFile, ConfText, drop_ins, plugins};
use crate::libcni::{entry_fault, kind, loads_inline_only};
use crate::settings::{MAIN, OURS, Settings, VNIC_ATTACH};
use crate::versions::{Answer, query};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChainBinary {
    pub(crate) name: String,
    /// The binary that was called: of our own plugin the source, which will be in place.
    pub(crate) path: PathBuf,
    pub(crate) answer: Answer,
    /// Our entry for it; none if another program added it to our configuration.
    pub(crate) entry: Option<Value>,
}

/// The plugins of our chain with their answers, also those that the folder of our network adds.
pub(crate) fn chain(settings: &Settings, conflist: Option<&ConfText>) -> Vec<ChainBinary> {
    let ours = settings.entries().into_iter().map(|entry| (kind(&entry).unwrap_or_default().to_owned(), Some(entry)));
    let mut members: Vec<(String, Option<Value>)> = ours.collect();
    let list = conflist.and_then(ConfText::list);
    let folder = (!list.is_some_and(loads_inline_only)).then(|| drop_ins(&settings.cni_conf_dir, vcn::NETWORK_NAME));
    let folder = folder.and_then(Result::ok).unwrap_or_default();
    // An entry that libcni refuses is removed.
    let listed = list.into_iter().flat_map(plugins).filter(|entry| entry_fault(entry).is_none());
    for kind in listed.chain(&folder).filter_map(kind) {
        let is_known = members.iter().any(|(name, _)| *name == kind) || OURS.contains(&kind);
        // A type with a slash is a path, which a runtime refuses.
        if !is_known && !kind.contains('/') {
            members.push((kind.to_owned(), None));
        }
    }
    let members = members.into_iter().map(|(name, entry)| {
        let path = path(settings, &name);
        let answer = query(&path);
        let is_dangling = answer == Answer::Missing && entry.is_none() && !is_missing(&path);
        let answer = if is_dangling { Answer::Failed(DANGLING.to_owned()) } else { answer };
        ChainBinary { name, path, answer, entry }
    });
    members.collect()
}

/// The answer of the plugin that is chained to another network.
pub(crate) fn guest(settings: &Settings) -> Answer {
    query(&path(settings, VNIC_ATTACH))
}

/// The plugins without a binary.
pub(crate) fn missing(settings: &Settings, file: &ConfFile) -> Vec<String> {
    let is_absent = |kind: &&str| is_missing(&settings.cni_bin_dir.join(kind));
    file.kinds().filter(is_absent).map(str::to_owned).collect()
}

/// A link may lead to a file on the host that this container does not have.
const DANGLING: &str = "it is a link to a file that is not mounted here";

fn is_missing(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

fn path(settings: &Settings, name: &str) -> PathBuf {
    let source = settings.source_dir.join(name);
    if name == MAIN || (name == VNIC_ATTACH && source.exists()) { source } else { settings.cni_bin_dir.join(name) }
}
