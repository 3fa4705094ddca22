//! What is on the disk now: other people's CNI configurations, ours, the binaries, and what the binaries of the chain
//! answer to VERSION. Looking changes nothing.

mod conf_file;

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

pub(crate) use conf_file::conf_files;
pub use conf_file::{ConfFile, Contents};

use crate::versions::{Answer, ask};
use crate::{Digest, Error, Settings, place};

/// The plugins that we bring. Every one must be in place before the configuration names it.
pub(crate) const OURS: [&str; 1] = ["vcn-native"];

/// The plugin for host ports, somebody else's: used where it exists.
pub(crate) const PORTMAP: &str = "portmap";

/// A temporary file this old belongs to an installer that was killed; a living one needs a second or two.
const STALE_AFTER: Duration = Duration::from_secs(600);

/// A node's disk, as far as it concerns us.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// The files that a runtime would consider, in the order it does.
    pub(crate) conf_files: Vec<ConfFile>,
    /// Our configuration's bytes.
    pub(crate) conflist: Option<Vec<u8>>,
    /// Directories of the runtime's that do not exist.
    pub(crate) missing_directories: Vec<PathBuf>,
    /// Our binaries, source and target.
    pub(crate) binaries: Vec<Binary>,
    /// The chain's binaries, the main plugin first.
    pub(crate) chain: Vec<ChainBinary>,
    /// Temporary files of installers that were killed.
    pub(crate) stale: Vec<PathBuf>,
}

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
    /// A directory or special file.
    Other,
}

/// One binary of the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChainBinary {
    pub(crate) name: &'static str,
    /// Where it was asked: our own at its source, which is what will be in place.
    pub(crate) path: PathBuf,
    pub(crate) answer: Answer,
}

impl Observed {
    /// Looks at everything that an installation concerns.
    pub(crate) fn look(settings: &Settings, conf_files: Vec<ConfFile>) -> Result<Self, Error> {
        let directories = [&settings.cni_bin_dir, &settings.cni_conf_dir];
        let mut chain = OURS.map(|name| member(name, settings.source_dir.join(name))).to_vec();
        if settings.portmap {
            chain.push(member(PORTMAP, settings.cni_bin_dir.join(PORTMAP)));
        }
        Ok(Self {
            conf_files,
            conflist: ours(settings)?,
            missing_directories: directories.into_iter().filter(|path| !path.exists()).cloned().collect(),
            binaries: OURS.iter().map(|name| binary(settings, name)).collect::<Result<_, _>>()?,
            chain,
            stale: directories.into_iter().flat_map(|path| stale(path, SystemTime::now())).collect(),
        })
    }

    /// Where nothing will be installed, binaries are not even looked at.
    pub(crate) fn without_binaries(conf_files: Vec<ConfFile>) -> Self {
        Self { conf_files, ..Self::default() }
    }
}

fn ours(settings: &Settings) -> Result<Option<Vec<u8>>, Error> {
    let path = settings.conflist();
    match fs::read(&path) {
        Ok(contents) => Ok(Some(contents)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Read { path, source }),
    }
}

fn binary(settings: &Settings, name: &str) -> Result<Binary, Error> {
    let (source, target) = (settings.source_dir.join(name), settings.cni_bin_dir.join(name));
    let wanted = fs::read(&source).map_err(|cause| Error::Source { path: source.clone(), source: cause })?;
    let found = found(&target).map_err(|cause| Error::Read { path: target.clone(), source: cause })?;
    Ok(Binary { source, target, digest: Digest::of(&wanted), found })
}

fn found(target: &Path) -> io::Result<Found> {
    // A link that leads nowhere is nothing: renaming over it replaces it.
    let metadata = match fs::metadata(target) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => return Err(error),
    };
    if !metadata.is_file() {
        return Ok(Found::Other);
    }
    Ok(Found::File { digest: Digest::of(&fs::read(target)?), mode: metadata.permissions().mode() & 0o7777 })
}

fn member(name: &'static str, path: PathBuf) -> ChainBinary {
    let answer = ask(&path);
    ChainBinary { name, path, answer }
}

/// Our temporary files in a directory that nobody can be writing any more. What cannot be looked at is left.
pub(crate) fn stale(directory: &Path, now: SystemTime) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| entry.file_name().to_str().is_some_and(place::is_temporary));
    let old = ours.filter(|entry| {
        let written = entry.metadata().and_then(|metadata| metadata.modified());
        written.is_ok_and(|written| now.duration_since(written).is_ok_and(|age| age >= STALE_AFTER))
    });
    let mut paths: Vec<_> = old.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}
