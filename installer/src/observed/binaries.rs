//! The binaries: ours, where they come from and where they belong, and what every one of a chain answers.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{ConfFile, ConfText, Contents};
use crate::entry::{MAIN, OURS, VNIC_ATTACH};
use crate::versions::Answer;
use crate::{Answers, Digest, Error, Settings};

/// One of our binaries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binary {
    pub(crate) source: PathBuf,
    pub(crate) target: PathBuf,
    /// Of the source.
    pub(crate) digest: Digest,
    pub(crate) found: Found,
}

/// What is at a binary's target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    File {
        digest: Digest,
        /// Permission bits.
        mode: u32,
    },
    /// A link. It may lead to the right file here and to none on the host: a container has files of its own.
    Link,
    /// A directory or special file.
    Other,
}

/// One binary of the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChainBinary {
    pub(crate) name: String,
    /// Where it was asked: our own at its source, which is what will be in place.
    pub(crate) path: PathBuf,
    pub(crate) answer: Answer,
    pub(crate) whose: Whose,
}

/// Who put a plugin into the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// It is our pod network.
    Main,
    /// The settings list it.
    Settings,
    /// Others have put it into our configuration.
    Others,
}

/// Our binaries that belong on the node.
pub(super) fn ours(settings: &Settings, install: bool) -> Vec<Result<Binary, Error>> {
    let listed = settings.chain.iter().any(|entry| entry.kind() == VNIC_ATTACH);
    let attach = if install { listed } else { settings.chain_into.is_some() };
    // An image without it is an older one: the plugin is then left out of the chain, and that is said there.
    let attach = attach && settings.source_dir.join(VNIC_ATTACH).exists();
    let names = [(MAIN, install), (VNIC_ATTACH, attach)].into_iter().filter(|(_, wanted)| *wanted);
    names.map(|(name, _)| binary(settings, name)).collect()
}

/// What the plugins of our chain answer.
pub(super) fn chain(settings: &Settings, conflist: Option<&ConfText>, answers: &Answers) -> Vec<ChainBinary> {
    let listed = settings.chain.iter().map(|entry| (entry.kind().to_owned(), Whose::Settings));
    let mut members: Vec<(String, Whose)> = [(MAIN.to_owned(), Whose::Main)].into_iter().chain(listed).collect();
    if let Some(Contents::Plugins(found)) = conflist.map(|conflist| Contents::parse(&conflist.contents)) {
        for kind in found {
            let known = members.iter().any(|(name, _)| *name == kind) || OURS.contains(&kind.as_str());
            // A type is a name, not a path: a runtime refuses it too.
            if !known && !kind.contains('/') {
                members.push((kind, Whose::Others));
            }
        }
    }
    let paths: Vec<PathBuf> = members.iter().map(|(name, _)| path(settings, name)).collect();
    let answers = answers.of(&paths);
    let members = members.into_iter().zip(paths).zip(answers);
    let binary = |(((name, whose), path), answer): (((String, Whose), PathBuf), Answer)| {
        let answer = match answer {
            Answer::Missing if whose == Whose::Others && !is_missing(&path) => Answer::Refused(ELSEWHERE.to_owned()),
            answer => answer,
        };
        ChainBinary { name, path, answer, whose }
    };
    members.map(binary).collect()
}

/// Plugins without a binary of the usable configurations before ours, up to the first that has all: no runtime reads further.
pub(super) fn missing_before(settings: &Settings, conf_files: &[ConfFile]) -> BTreeMap<String, Vec<String>> {
    let missing = |kind: &&String| is_missing(&settings.cni_bin_dir.join(kind));
    conf_files
        .iter()
        .take_while(|file| file.name.as_str() < vcn::CONFLIST_FILE)
        .filter_map(|file| match &file.contents {
            Contents::Plugins(kinds) => Some((file.name.clone(), kinds.iter().filter(missing).cloned().collect())),
            Contents::Refused(..) | Contents::Malformed(_) | Contents::Unread(_) => None,
        })
        .take_while(|(_, missing): &(String, Vec<String>)| !missing.is_empty())
        .collect()
}

/// Why a link says nothing: a container has files of its own.
const ELSEWHERE: &str = "it is a link to what cannot be seen from here";

fn is_missing(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// What the plugin answers that is chained into others' configurations.
pub(super) fn guest(settings: &Settings, answers: &Answers) -> Answer {
    answers.of(&[path(settings, VNIC_ATTACH)]).pop().unwrap_or(Answer::Missing)
}

fn path(settings: &Settings, name: &str) -> PathBuf {
    let source = settings.source_dir.join(name);
    if name == MAIN || (name == VNIC_ATTACH && source.exists()) { source } else { settings.cni_bin_dir.join(name) }
}

fn binary(settings: &Settings, name: &str) -> Result<Binary, Error> {
    let (source, target) = (settings.source_dir.join(name), settings.cni_bin_dir.join(name));
    let digest = Digest::of_file(&source).map_err(|cause| Error::Source { path: source.clone(), source: cause })?;
    let found = found(&target).map_err(|cause| Error::Read { path: target.clone(), source: cause })?;
    Ok(Binary { source, target, digest, found })
}

fn found(target: &Path) -> io::Result<Found> {
    let metadata = match fs::symlink_metadata(target) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => return Err(error),
    };
    if metadata.is_symlink() {
        return Ok(Found::Link);
    }
    if !metadata.is_file() {
        return Ok(Found::Other);
    }
    Ok(Found::File { digest: Digest::of_file(target)?, mode: metadata.permissions().mode() & 0o7777 })
}
