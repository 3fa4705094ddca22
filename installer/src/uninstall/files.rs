//! The files: ours go, and what was there before us comes back.

use std::fs;
use std::io;
use std::path::Path;

use crate::entry::OURS;
use crate::observed::{At, ConfFile, conf_files, is_ours, stale_in};
use crate::place::{NewFile, place_unless};
use crate::plan::{Writing, unchain};
use crate::record::{Before, Binary, Configuration, Record};
use crate::{Digest, Error, Removal, Settings, Step};

/// Configurations: ours goes, whatever others have put into it, for without our plugin they have no interface to work on;
/// out of others' only our entry goes.
pub(super) fn configurations(settings: &Settings, record: &Record, removal: &mut Removal) {
    for (name, known) in &record.configurations {
        if name != vcn::CONFLIST_FILE {
            host(settings, (name, known), removal);
        }
    }
    let known = record.configurations.get(vcn::CONFLIST_FILE);
    let path = settings.conflist();
    let found = At::settled(&path);
    let target = match (&found, known) {
        (At::Nothing, _) => &path,
        (At::File(found), _) if is_ours(found, known) => &found.target,
        // What we put there was made a link, or something worse.
        (At::Link(_), Some(_)) => &path,
        (At::Unread(reason), Some(_)) => {
            let (path, reason) = (path.clone(), reason.clone());
            return removal.failures.push(Error::Unusable { path, reason });
        }
        (At::File(_) | At::Link(_) | At::Unread(_), _) => {
            return removal.left.push(format!("{}: it was not written by us", path.display()));
        }
    };
    let before = known.and_then(|known| known.before.as_ref());
    give_back(target, before, settings, removal);
    // A link that leads nowhere is a configuration that cannot be read: the runtime would refuse all of them.
    if before.is_none() && *target != path && path.is_symlink() {
        removal.step(format!("remove the link {}", path.display()), || remove(&path));
    }
}

/// The first configuration that a runtime can use and that is not ours: that of the network that pods get now, or get next. In
/// doubt it is one.
pub(super) fn successor(settings: &Settings) -> Option<String> {
    let files = conf_files(&settings.cni_conf_dir).unwrap_or_default();
    files.into_iter().find(ConfFile::may_give_another_network).map(|file| file.name)
}

fn host(settings: &Settings, (name, known): (&str, &Configuration), removal: &mut Removal) {
    let path = settings.cni_conf_dir.join(name);
    match unchain(name, &At::settled(&path), known) {
        Ok(Step::WriteConflist(writing)) => {
            let what = Step::WriteConflist(writing.clone()).to_string();
            removal.step(what, || rewrite(&writing));
        }
        Ok(_) => {}
        Err(reason) => removal.failures.push(Error::Unusable { path, reason }),
    }
}

/// Writes somebody's configuration, if it is still as it was looked at: what he wrote since would be lost.
fn rewrite(writing: &Writing) -> Result<(), Error> {
    let Writing { target, contents, mode, found, .. } = writing;
    let unless = || match At::look(target).file() {
        Some(now) if Some(&now.contents) == found.as_ref() => Ok(()),
        _ => Err(Error::Raced { target: target.clone() }),
    };
    place_unless(NewFile::ours(target, contents.as_bytes(), *mode), &unless)
}

/// Binaries, where they are what we put there.
pub(super) fn binaries(settings: &Settings, record: &Record, removal: &mut Removal) {
    let none = Binary::default();
    for name in OURS {
        let target = settings.cni_bin_dir.join(name);
        let known = record.binaries.get(name);
        let found = match digest(&target) {
            Ok(found) => found,
            Err(error) => {
                removal.failures.push(error);
                continue;
            }
        };
        let source = digest(&settings.source_dir.join(name)).ok().flatten();
        let ours =
            [known.and_then(|known| known.digest.clone()), known.and_then(|known| known.earlier.clone()), source];
        // An earlier release, which remembered nothing, left a configuration that names it.
        let unknown = record.binaries.is_empty() && removal.has_removed_configuration(settings);
        if found.is_some() && !ours.contains(&found) && !unknown {
            removal.left.push(format!("{}: it is not what we put there", target.display()));
        } else if found.is_some() || known.is_some() {
            give_back(&target, known.unwrap_or(&none).before.as_ref(), settings, removal);
        }
    }
    for directory in &settings.written_directories() {
        for path in stale_in(directory, std::time::SystemTime::now(), std::time::Duration::ZERO) {
            removal.step(format!("remove {}", path.display()), || remove(&path));
        }
    }
}

impl Removal {
    fn has_removed_configuration(&self, settings: &Settings) -> bool {
        self.steps.contains(&format!("remove {}", settings.conflist().display()))
    }
}

/// What was there before, or nothing.
fn give_back(target: &Path, before: Option<&Before>, settings: &Settings, removal: &mut Removal) {
    match before {
        Some(before) => {
            let what = format!("give back {} as it was before us", target.display());
            removal.step(what, || before.give_back(target, &settings.data_dir));
        }
        None if fs::symlink_metadata(target).is_ok() => {
            removal.step(format!("remove {}", target.display()), || remove(target));
        }
        None => {}
    }
}

fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(|source| Error::Remove { path: path.to_owned(), source }),
    }
}

/// A file's digest; a link's is none that we ever put anywhere.
fn digest(path: &Path) -> Result<Option<String>, Error> {
    let of = |path: &Path| match fs::symlink_metadata(path)? {
        found if found.is_symlink() => Ok("a link".to_owned()),
        found if found.is_file() => Digest::of_file(path).map(|digest| digest.to_string()),
        _ => Err(io::Error::other("it is a directory or special file; move it away")),
    };
    match of(path) {
        Ok(digest) => Ok(Some(digest)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Read { path: path.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_somebody_writes_while_our_entry_is_taken_out_of_his_file_is_not_lost() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("10-flannel.conflist");
        let text = |plugins: &str| format!(r#"{{"name":"cbr0","plugins":[{plugins}]}}"#);
        let chained = text(r#"{"type":"flannel"},{"type":"vnic-attach"}"#);
        fs::write(&path, &chained).unwrap();
        let mut record = Record::default();
        let known = record.configurations.entry("10-flannel.conflist".to_owned()).or_default();
        known.wanted = Some(json!({"type": "vnic-attach"}));
        let Ok(Step::WriteConflist(writing)) = unchain("10-flannel.conflist", &At::settled(&path), known) else {
            panic!("there is something to take out")
        };
        let his = text(r#"{"type":"flannel","delegate":{}},{"type":"vnic-attach"}"#);
        fs::write(&path, &his).unwrap();
        let refused = rewrite(&writing).unwrap_err();
        assert_eq!((refused.word(), fs::read_to_string(&path).unwrap()), ("raced", his));
        fs::write(&path, &chained).unwrap();
        rewrite(&writing).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text(r#"{"type":"flannel"}"#));
    }
}
