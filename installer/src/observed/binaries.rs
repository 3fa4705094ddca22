//! Our binaries, with source and target, and the CNI versions that each binary of a chain speaks.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{ConfFile, ConfText, kind, plugins};
use crate::error::Error;
use crate::files::{irregular, same_contents};
use crate::settings::{MAIN, OURS, Settings, VNIC_ATTACH, vnic_attach_entry};
use crate::versions::{Answer, ask};

pub(crate) const BINARY_MODE: u32 = 0o755;

/// One of our binaries that is to be installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binary {
    pub(crate) source: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) found: BinaryFound,
}

/// What has a binary's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BinaryFound {
    Nothing,
    /// A file with other contents.
    Other,
    /// The binary, with these permission bits: a mode is set without free space.
    Mode(u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChainBinary {
    pub(crate) name: String,
    /// The binary that was asked: of our own plugin the source, which will be in place.
    pub(crate) path: PathBuf,
    pub(crate) answer: Answer,
    /// Our entry for it; none if another program added it to our configuration.
    pub(crate) entry: Option<Value>,
}

/// Compares a binary with its source; `None` if it is in place.
pub(super) fn to_install(settings: &Settings, name: &str) -> Result<Option<Binary>, Error> {
    let (source, target) = (settings.source_dir.join(name), settings.cni_bin_dir.join(name));
    let file = File::open(&source).map_err(|cause| Error::Source { path: source.clone(), source: cause })?;
    let reading = Error::reading(&target);
    let found = match fs::symlink_metadata(&target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => BinaryFound::Nothing,
        Err(error) => return Err(reading(error)),
        // A link may lead to the right file in this container and to no file on the host.
        Ok(found) if !found.is_file() => return Err(Error::InTheWay { reason: irregular(&target), path: target }),
        Ok(found) => {
            let (mode, old) = (found.permissions().mode() & 0o7777, File::open(&target).map_err(&reading)?);
            match same_contents(file, old).map_err(&reading)? {
                true if mode == BINARY_MODE => return Ok(None),
                true => BinaryFound::Mode(mode),
                false => BinaryFound::Other,
            }
        }
    };
    Ok(Some(Binary { source, target, found }))
}

/// The plugins of our chain with their answers.
pub(super) fn chain(settings: &Settings, conflist: Option<&ConfText>) -> Vec<ChainBinary> {
    let ours = settings.entries().into_iter().map(|entry| (kind(&entry).unwrap_or_default().to_owned(), Some(entry)));
    let mut members: Vec<(String, Option<Value>)> = ours.collect();
    for kind in conflist.and_then(ConfText::list).into_iter().flat_map(plugins).filter_map(kind) {
        let is_known = members.iter().any(|(name, _)| *name == kind) || OURS.contains(&kind);
        // A type with a slash is a path, which a runtime refuses.
        if !is_known && !kind.contains('/') {
            members.push((kind.to_owned(), None));
        }
    }
    asked(settings, members)
}

/// The plugin that is chained to another network.
pub(super) fn guest(settings: &Settings) -> Vec<ChainBinary> {
    asked(settings, vec![(VNIC_ATTACH.to_owned(), Some(vnic_attach_entry()))])
}

fn asked(settings: &Settings, members: Vec<(String, Option<Value>)>) -> Vec<ChainBinary> {
    let members = members.into_iter().map(|(name, entry)| {
        let path = path(settings, &name);
        let answer = ask(&path);
        let is_dangling = answer == Answer::Missing && entry.is_none() && !is_missing(&path);
        let answer = if is_dangling { Answer::Failed(DANGLING.to_owned()) } else { answer };
        ChainBinary { name, path, answer, entry }
    });
    members.collect()
}

/// Finds the plugins without a binary of the usable configurations before our one (`name`), up to the first that has all: no
/// runtime reads further.
pub(super) fn find_missing(settings: &Settings, files: &mut [ConfFile], name: &str) {
    for file in files.iter_mut().take_while(|file| file.name.as_str() < name).filter(|file| file.fault.is_none()) {
        let is_absent = |kind: &&str| is_missing(&settings.cni_bin_dir.join(kind));
        file.missing = file.kinds().filter(is_absent).map(str::to_owned).collect();
        if file.missing.is_empty() {
            return;
        }
    }
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
