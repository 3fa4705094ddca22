//! Our binaries, with source and target, and the CNI versions that each binary of a chain speaks.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{ConfFile, ConfText, Contents};
use crate::error::Error;
use crate::files::{irregular, same_contents};
use crate::settings::{MAIN, OURS, PluginEntry, Settings, VNIC_ATTACH};
use crate::versions::{Answer, VersionCache};

/// One of our binaries.
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
    File {
        /// Whether it has the source's contents.
        same: bool,
        /// Permission bits.
        mode: u32,
    },
    /// A link, a directory or a special file; why it is in the way.
    Other(String),
}

/// One binary of the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChainBinary {
    pub(crate) name: String,
    /// The binary that was asked: of our own plugin the source, which will be in place.
    pub(crate) path: PathBuf,
    pub(crate) answer: Answer,
    pub(crate) origin: EntryOrigin,
}

/// Why a plugin is in the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryOrigin {
    /// It is our own, which gives pods their address.
    Us,
    /// The settings list it.
    Settings,
    /// Another program added it to our configuration.
    OtherProgram,
}

/// Our binaries that belong on the node.
pub(super) fn ours(settings: &Settings, install: bool) -> Vec<Result<Binary, Error>> {
    let names = [(MAIN, install), (VNIC_ATTACH, settings.places_vnic_attach(install))]
        .into_iter()
        .filter(|(_, wanted)| *wanted);
    names.map(|(name, _)| binary(settings, name)).collect()
}

/// The plugins of our chain with their answers.
pub(super) fn chain(settings: &Settings, conflist: Option<&ConfText>, versions: &mut VersionCache) -> Vec<ChainBinary> {
    // Unless it is listed by name, it is in the chain where the image has it.
    let listed = |entry: &&PluginEntry| {
        entry.kind() != VNIC_ATTACH || settings.lists_vnic_attach() || settings.source_dir.join(VNIC_ATTACH).exists()
    };
    let behind = settings.behind();
    let listed = behind.iter().filter(listed).map(|entry| (entry.kind().to_owned(), EntryOrigin::Settings));
    let mut members: Vec<(String, EntryOrigin)> =
        [(MAIN.to_owned(), EntryOrigin::Us)].into_iter().chain(listed).collect();
    if let Some(Contents::Plugins(found)) = conflist.map(|conflist| Contents::parse(&conflist.contents)) {
        for kind in found {
            let known = members.iter().any(|(name, _)| *name == kind) || OURS.contains(&kind.as_str());
            // A type with a slash is a path, which a runtime refuses.
            if !known && !kind.contains('/') {
                members.push((kind, EntryOrigin::OtherProgram));
            }
        }
    }
    let paths: Vec<PathBuf> = members.iter().map(|(name, _)| path(settings, name)).collect();
    let answers = versions.answers(&paths);
    let mut chain = Vec::new();
    for (((name, origin), path), answer) in members.into_iter().zip(paths).zip(answers) {
        let dangling = answer == Answer::Missing && origin == EntryOrigin::OtherProgram && !is_missing(&path);
        let answer = if dangling { Answer::Failed(DANGLING.to_owned()) } else { answer };
        chain.push(ChainBinary { name, path, answer, origin });
    }
    chain
}

/// The plugins without a binary of each usable configuration before our one (`name`), up to the first that has all: no runtime
/// reads further.
pub(super) fn missing_before(settings: &Settings, files: &[ConfFile], name: &str) -> BTreeMap<String, Vec<String>> {
    let missing = |kind: &&String| is_missing(&settings.cni_bin_dir.join(kind));
    files
        .iter()
        .take_while(|file| file.name.as_str() < name)
        .filter_map(|file| match &file.contents {
            Contents::Plugins(kinds) => Some((file.name.clone(), kinds.iter().filter(missing).cloned().collect())),
            Contents::Refused(..) | Contents::Malformed(_) | Contents::Unread(_) => None,
        })
        .take_while(|(_, missing): &(String, Vec<String>)| !missing.is_empty())
        .collect()
}

/// A link may lead to a file on the host that this container does not have.
const DANGLING: &str = "it is a link to a file that is not mounted here";

fn is_missing(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// The answer of the plugin that is chained to another network.
pub(super) fn guest(settings: &Settings, versions: &mut VersionCache) -> Answer {
    versions.answers(&[path(settings, VNIC_ATTACH)]).pop().unwrap_or(Answer::Missing)
}

fn path(settings: &Settings, name: &str) -> PathBuf {
    let source = settings.source_dir.join(name);
    if name == MAIN || (name == VNIC_ATTACH && source.exists()) { source } else { settings.cni_bin_dir.join(name) }
}

fn binary(settings: &Settings, name: &str) -> Result<Binary, Error> {
    let (source, target) = (settings.source_dir.join(name), settings.cni_bin_dir.join(name));
    let file = File::open(&source).map_err(|cause| Error::Source { path: source.clone(), source: cause })?;
    let found = found(&target, file).map_err(|cause| Error::Read { path: target.clone(), source: cause })?;
    Ok(Binary { source, target, found })
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
    Ok(BinaryFound::File {
        same: same_contents(source, File::open(target)?)?,
        mode: metadata.permissions().mode() & 0o7777,
    })
}
