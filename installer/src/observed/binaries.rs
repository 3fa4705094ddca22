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
use crate::versions::{Answer, VersionCache};

pub(crate) const BINARY_MODE: u32 = 0o755;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binary {
    pub(crate) source: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) found: BinaryFound,
}

/// What has a binary's name in the runtime's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BinaryFound {
    Nothing,
    /// The source's contents, and its mode.
    Same,
    /// A file with other contents or another mode.
    Different,
    /// A link, a directory or a special file; why it is in the way.
    Other(String),
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

pub(super) fn ours(settings: &Settings, install: bool) -> impl Iterator<Item = Result<Binary, Error>> {
    let names = [(MAIN, install), (VNIC_ATTACH, settings.places_vnic_attach(install))];
    names.into_iter().filter(|(_, wanted)| *wanted).map(|(name, _)| {
        let (source, target) = (settings.source_dir.join(name), settings.cni_bin_dir.join(name));
        let file = File::open(&source).map_err(|cause| Error::Source { path: source.clone(), source: cause })?;
        let found = found(&target, file).map_err(Error::reading(&target))?;
        Ok(Binary { source, target, found })
    })
}

/// The plugins of our chain with their answers.
pub(super) fn chain(settings: &Settings, conflist: Option<&ConfText>, versions: &mut VersionCache) -> Vec<ChainBinary> {
    let ours = settings.entries().into_iter().map(|entry| (kind(&entry).unwrap_or_default().to_owned(), Some(entry)));
    let mut members: Vec<(String, Option<Value>)> = ours.collect();
    for kind in conflist.and_then(ConfText::list).into_iter().flat_map(plugins).filter_map(kind) {
        let is_known = members.iter().any(|(name, _)| *name == kind) || OURS.contains(&kind);
        // A type with a slash is a path, which a runtime refuses.
        if !is_known && !kind.contains('/') {
            members.push((kind.to_owned(), None));
        }
    }
    asked(settings, members, versions)
}

/// The plugin that is chained to another network.
pub(super) fn guest(settings: &Settings, versions: &mut VersionCache) -> Vec<ChainBinary> {
    asked(settings, vec![(VNIC_ATTACH.to_owned(), Some(vnic_attach_entry()))], versions)
}

fn asked(settings: &Settings, members: Vec<(String, Option<Value>)>, versions: &mut VersionCache) -> Vec<ChainBinary> {
    let paths: Vec<PathBuf> = members.iter().map(|(name, _)| path(settings, name)).collect();
    let answers = versions.answers(&paths);
    let members = members.into_iter().zip(paths).zip(answers).map(|(((name, entry), path), answer)| {
        let is_dangling = answer == Answer::Missing && entry.is_none() && !is_missing(&path);
        let answer = if is_dangling { Answer::Failed(DANGLING.to_owned()) } else { answer };
        ChainBinary { name, path, answer, entry }
    });
    members.collect()
}

/// Finds the plugins without a binary of the usable configurations before our one (`name`), up to the first that has all: no
/// runtime reads further.
pub(super) fn find_missing(settings: &Settings, files: &mut [ConfFile], name: &str) {
    for file in files.iter_mut().take_while(|file| file.name.as_str() < name).filter(|file| file.is_usable()) {
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

fn found(target: &Path, source: File) -> io::Result<BinaryFound> {
    let metadata = match fs::symlink_metadata(target) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BinaryFound::Nothing),
        Err(error) => return Err(error),
    };
    // A link may lead to the right file in this container and to no file on the host.
    if !metadata.is_file() {
        return Ok(BinaryFound::Other(irregular(target)));
    }
    let same = metadata.permissions().mode() & 0o7777 == BINARY_MODE && same_contents(source, File::open(target)?)?;
    Ok(if same { BinaryFound::Same } else { BinaryFound::Different })
}
