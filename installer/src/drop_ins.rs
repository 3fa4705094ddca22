//! Files that tell the host's network managers to leave our links, routes and rules alone. The agent writes them where it is
//! allowed to; here is by what they are told from others', which of them were written, and how they go again.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::place::{NewFile, place};
use crate::{Error, Removal, kept};

/// How each begins; a file of the same name that does not is somebody else's.
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

/// Which were written, in the data directory: whoever uninstalls may not see the host's /etc, and has to say so.
pub(crate) const FILE: &str = "drop-ins.json";

const ALL: [&str; 4] = [NETWORKD, NETWORKD_PODS, NETWORKD_VNICS, NETWORK_MANAGER];
const VERSION: u32 = 1;
const MODE: u32 = 0o600;

/// The file. Unknown fields, a later version's, are kept.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Notes {
    version: u32,
    written: BTreeSet<String>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

/// Notes that one is about to be written. Nothing is written when it is noted already; notes that are damaged are begun
/// anew.
///
/// # Errors
/// When the note cannot be kept.
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
    let made = DirBuilder::new().recursive(true).mode(0o700).create(data_dir);
    made.map_err(|source| Error::Place { target: path.clone(), action: "creating its directory", source })?;
    keep(&path, &notes)
}

/// Which are noted as written, from the host's root.
///
/// # Errors
/// When the notes cannot be read.
pub fn noted_drop_ins(data_dir: &Path) -> Result<BTreeSet<String>, Error> {
    let mut written = read(&data_dir.join(FILE))?.written;
    written.retain(|below| is_below_etc(below));
    Ok(written)
}

/// Notes that one is gone.
///
/// # Errors
/// When the notes cannot be read or kept.
pub fn forget_drop_in(data_dir: &Path, below_root: &str) -> Result<(), Error> {
    let path = data_dir.join(FILE);
    let mut notes = read(&path)?;
    if !notes.written.remove(below_root) {
        return Ok(());
    }
    keep(&path, &notes)
}

/// Removes all that are ours below the host's root. One that was written and whose directory is not to be seen from here is
/// a failure, unless `forced`.
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
        let in_sight = path.parent().is_some_and(Path::is_dir);
        if noted && !in_sight && !forced {
            removal.failures.push(Error::OutOfSight { path });
            continue;
        }
        if noted && !in_sight {
            removal.left.push(format!("{}: its directory is not to be seen from here", path.display()));
            continue;
        }
        for path in [path.with_extension(UNFINISHED), path] {
            match is_ours(&path) {
                Ok(Some(true)) => removal.step(format!("remove {}", path.display()), || remove_file(&path)),
                Ok(Some(false)) => removal.left.push(format!("{}: it was not written by us", path.display())),
                Ok(None) => {}
                Err(source) => removal.failures.push(Error::Read { path, source }),
            }
        }
    }
}

fn keep(path: &Path, notes: &Notes) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(notes);
    let text = text.map_err(|source| Error::Record { path: path.to_owned(), source })?;
    place(NewFile::ours(path, format!("{text}\n").as_bytes(), MODE))
}

/// By its first line; one that is being written may not have come to the end of it. `None` where there is no file.
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

fn remove_file(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(|source| Error::Remove { path: path.to_owned(), source }),
    }
}

fn read(path: &Path) -> Result<Notes, Error> {
    Ok(kept::read(path)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_noted_once_and_a_later_versions_fields_are_kept() {
        let data = tempfile::tempdir().unwrap();
        let path = data.path().join(FILE);
        fs::write(&path, r#"{"version":2,"written":["etc/later.d/x.conf"],"later":{"a":[1]}}"#).unwrap();
        note_drop_in(data.path(), NETWORKD).unwrap();
        let kept: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let wanted = serde_json::json!(
            {"version": 2, "written": ["etc/later.d/x.conf", NETWORKD], "later": {"a": [1]}});
        assert_eq!(kept, wanted);
        let inode = || std::os::unix::fs::MetadataExt::ino(&fs::metadata(&path).unwrap());
        let before = inode();
        note_drop_in(data.path(), NETWORKD).unwrap();
        assert_eq!(inode(), before);
        fs::write(&path, "{").unwrap();
        note_drop_in(data.path(), NETWORKD).unwrap();
        assert_eq!(read(&path).unwrap().written, BTreeSet::from([NETWORKD.to_owned()]));
    }

    #[test]
    fn what_is_no_regular_file_is_not_ours_and_nothing_waits_for_it() {
        let data = tempfile::tempdir().unwrap();
        let (path, ours) = (data.path().join(FILE), data.path().join("ours"));
        fs::write(&ours, MARK).unwrap();
        let plant: [&dyn Fn(); 3] = [
            &|| nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap(),
            &|| std::os::unix::fs::symlink(&ours, &path).unwrap(),
            &|| fs::File::create(&path).unwrap().set_len(3 << 30).unwrap(),
        ];
        for plant in plant {
            plant();
            assert_eq!(is_ours(&path).unwrap(), Some(false));
            assert!(matches!(noted_drop_ins(data.path()), Err(Error::Record { .. })));
            // Begun again, as what is damaged is.
            note_drop_in(data.path(), NETWORKD).unwrap();
            assert_eq!(noted_drop_ins(data.path()).unwrap(), BTreeSet::from([NETWORKD.to_owned()]));
            assert_eq!(fs::read_to_string(&ours).unwrap(), MARK);
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn what_is_gone_is_forgotten_and_the_others_stay_noted() {
        let data = tempfile::tempdir().unwrap();
        for below in [NETWORKD, NETWORKD_PODS] {
            note_drop_in(data.path(), below).unwrap();
        }
        forget_drop_in(data.path(), NETWORKD).unwrap();
        forget_drop_in(data.path(), NETWORK_MANAGER).unwrap();
        assert_eq!(noted_drop_ins(data.path()).unwrap(), BTreeSet::from([NETWORKD_PODS.to_owned()]));
    }

    #[test]
    fn a_note_leads_nowhere_but_below_etc() {
        for (below, leads) in [("etc/a/b.conf", true), ("etc/../run/x", false), ("run/x", false), ("etc//x", false)] {
            assert_eq!(is_below_etc(below), leads, "{below}");
        }
    }
}
