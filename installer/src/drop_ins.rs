//! Drop-ins that make the host's network managers leave our links, routes and rules alone. The agent writes them if it is
//! allowed to, and notes each; uninstalling removes those that begin with our mark.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::files::{self, read_document, write_document};
use crate::{Error, Removal};

/// The first line of each; a file of the same name without it is foreign.
pub const MARK: &str = "# Written by the OKE node agent, which also removes it when it is uninstalled.\n";

/// systemd-networkd's general settings, from the host's root as all of these.
pub const NETWORKD: &str = "etc/systemd/networkd.conf.d/50-vcn-native.conf";
/// systemd-networkd: pods' links.
pub const NETWORKD_PODS: &str = "etc/systemd/network/10-vcn-native-pods.network";
/// systemd-networkd: VNICs' links.
pub const NETWORKD_VNICS: &str = "etc/systemd/network/10-vcn-native-vnics.network";
/// NetworkManager: both.
pub const NETWORK_MANAGER: &str = "etc/NetworkManager/conf.d/50-vcn-native.conf";

/// The extension of one that is being written.
pub const UNFINISHED: &str = "vcn-native-new";

/// The notes, in the data directory: the uninstaller reports a drop-in whose directory is not mounted.
pub(crate) const FILE: &str = "drop-ins.json";

const ALL: [&str; 4] = [NETWORKD, NETWORKD_PODS, NETWORKD_VNICS, NETWORK_MANAGER];
const VERSION: u32 = 1;

/// The notes. Unknown fields, of a later version, are kept.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Notes {
    version: u32,
    written: BTreeSet<String>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

/// Notes a drop-in before it is written. Damaged notes are replaced.
///
/// # Errors
/// When the notes cannot be written.
pub fn note_drop_in(data_dir: &Path, below_root: &str) -> Result<(), Error> {
    let path = data_dir.join(FILE);
    let mut notes = match read(&path) {
        Ok(notes) => notes,
        Err(Error::Record { .. }) => Notes::default(),
        Err(error) => return Err(error),
    };
    if !notes.written.insert(below_root.to_owned()) {
        return Ok(());
    }
    notes.version = notes.version.max(VERSION);
    write_document(&path, &notes)
}

/// The noted ones, from the host's root.
///
/// # Errors
/// When the notes cannot be read.
pub fn noted_drop_ins(data_dir: &Path) -> Result<BTreeSet<String>, Error> {
    let mut written = read(&data_dir.join(FILE))?.written;
    written.retain(|below| is_below_etc(below));
    Ok(written)
}

/// Deletes a note of a drop-in that is gone.
///
/// # Errors
/// When the notes cannot be read or written.
pub fn forget_drop_in(data_dir: &Path, below_root: &str) -> Result<(), Error> {
    let path = data_dir.join(FILE);
    let mut notes = read(&path)?;
    if !notes.written.remove(below_root) {
        return Ok(());
    }
    write_document(&path, &notes)
}

/// Removes all of our drop-ins below the host's root. A noted one whose directory is not mounted is a failure, unless `forced`.
pub(crate) fn remove(data_dir: &Path, root: &Path, forced: bool, removal: &mut Removal) {
    let notes = read(&data_dir.join(FILE)).unwrap_or_else(|error| {
        removal.failures.push(error);
        Notes::default()
    });
    // A later version may have written more of them.
    let further = notes.written.iter().map(String::as_str).filter(|below| is_below_etc(below));
    let all: BTreeSet<&str> = ALL.into_iter().chain(further).collect();
    for below in all {
        let path = root.join(below);
        let noted = notes.written.contains(below);
        let mounted = path.parent().is_some_and(Path::is_dir);
        if noted && !mounted && !forced {
            removal.failures.push(Error::NotMounted { path });
            continue;
        }
        if noted && !mounted {
            removal.left.push(format!("{}: its directory is not mounted here", path.display()));
            continue;
        }
        for path in [path.with_extension(UNFINISHED), path] {
            match is_ours(&path) {
                Ok(Some(true)) => removal.step(format!("remove {}", path.display()), || files::remove(&path)),
                Ok(Some(false)) => removal.left.push(format!("{}: it was not written by us", path.display())),
                Ok(None) => {}
                Err(source) => removal.failures.push(Error::Read { path, source }),
            }
        }
    }
}

/// Whether a file begins with our mark, or with a part of it and is unfinished. `None` if there is no file.
///
/// # Errors
/// When it cannot be read.
pub fn is_ours(path: &Path) -> io::Result<Option<bool>> {
    let text = match ipam::read_state(path) {
        Ok(text) => text,
        Err(error) => {
            return match error.kind() {
                io::ErrorKind::NotFound => Ok(None),
                // Not a regular file, or larger than any drop-in that the agent writes.
                io::ErrorKind::InvalidData | io::ErrorKind::IsADirectory => Ok(Some(false)),
                _ => Err(error),
            };
        }
    };
    let unfinished = path.extension().is_some_and(|end| end == UNFINISHED) && MARK.as_bytes().starts_with(&text);
    Ok(Some(unfinished || text.starts_with(MARK.as_bytes())))
}

fn is_below_etc(below: &str) -> bool {
    below.starts_with("etc/") && !below.split('/').any(|part| part.is_empty() || part == "..")
}

fn read(path: &Path) -> Result<Notes, Error> {
    Ok(read_document(path)?.unwrap_or_default())
}
