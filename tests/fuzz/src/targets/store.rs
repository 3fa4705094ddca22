//! The store with its whole folder. A file of another program, a damaged one, or one of a later version is refused by name and
//! left alone, or set aside. What is understood never gives an address to two pods.

use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use cni::AttachmentKey;
use ipam::{Allocation, Allocations, Error, Store};

use super::state::{NOW, boot, requested, two_vnics};

/// Between the files of one input (ASCII's record separator).
const SEPARATOR: u8 = 0x1e;

/// Files and what is in them.
type Files = Vec<(PathBuf, Vec<u8>)>;

thread_local! {
    /// A folder of this thread's, in memory, and the files that a store keeps in it.
    static STATE: LazyCell<(tempfile::TempDir, Files)> = LazyCell::new(|| {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap_or_else(|error| panic!("a folder in /dev/shm: {error}"));
        fill(folder.path()).unwrap_or_else(|error| panic!("a store in {}: {error}", folder.path().display()));
        let files = files(folder.path()).unwrap_or_else(|error| panic!("{}: {error}", folder.path().display()));
        (folder, files)
    });
}

/// The contents of the store's files, in the order of their names.
pub(super) fn folder(input: &[u8]) {
    STATE.with(|state| {
        let (folder, files) = &**state;
        let contents = input.split(|byte| *byte == SEPARATOR);
        let written = replace(folder.path(), files.iter().map(|(path, _)| path.as_path()).zip(contents.clone()));
        assert!(written.is_ok(), "{written:?}");
        read_and_change(folder.path(), contents.take(files.len()));
    });
}

fn read_and_change<'a>(folder: &Path, mut before: impl Iterator<Item = &'a [u8]>) {
    let store = Store::new(folder, boot());
    // Each damaged record is set aside and kept for a support case.
    let read = (0..8).map(|_| store.read()).find(|read| match read {
        Err(Error::Damaged { .. }) => {
            let aside = store.set_aside();
            let later = matches!(aside, Err(Error::TooNew { .. }));
            assert!(later || matches!(&aside, Ok(Some(path)) if path.exists()), "{aside:?}");
            later
        }
        _ => true,
    });
    match read {
        Some(Ok(held)) => change(folder, &store, &held),
        // Of a later version, or next to one that is.
        Some(Err(Error::TooNew { .. } | Error::Damaged { .. })) => {
            let refused = store.update(|held| {
                held.freed.clear();
                Ok::<_, Error>(())
            });
            assert!(matches!(refused, Err(Error::TooNew { .. } | Error::Damaged { .. })), "{refused:?}");
            let after = files(folder).ok();
            let kept = |file: &[u8]| file.is_empty() || after.iter().flatten().any(|(_, content)| content == file);
            assert!(before.all(kept), "a later version's file is left alone");
        }
        other => panic!("{other:?}"),
    }
}

/// Every address that is left is given out once; what is given back is given back.
fn change(folder: &Path, store: &Store, held: &Allocations) {
    let lives = |held: &&Allocation| held.tentative_until.is_none_or(|until| until > NOW);
    let addresses = |held: &Allocation| held.addresses.iter().map(|a| a.address).collect::<Vec<_>>();
    let mut taken: BTreeSet<IpAddr> = held.allocations.iter().filter(lives).flat_map(addresses).collect();
    let mut taken_by = |allocation: &Allocation| {
        for address in addresses(allocation) {
            assert!(taken.insert(address), "{address} was given out twice");
        }
    };
    let keys: Vec<_> =
        (0..6).filter_map(|number| format!("vcn-native/new{number}/eth0").parse::<AttachmentKey>().ok()).collect();
    let reserve = |held: &mut Allocations, key: &AttachmentKey| held.reserve(&two_vnics(), requested(key.clone()), NOW);
    let mut last = None;
    // One by one, as plugins do, and all that is left at once: a file is written each time.
    let (some, rest) = keys.split_at(2);
    for key in some {
        match store.update_for(key, |held| reserve(held, key)) {
            Ok(reservation) => {
                taken_by(&reservation.allocation);
                last = Some(key);
            }
            // A record that only an ADD of this name would meet, or one that belongs to another entry.
            Err(Error::Exhausted(_) | Error::Damaged { .. } | Error::TooNew { .. } | Error::Collision { .. }) => break,
            Err(other) => panic!("{other}"),
        }
    }
    let at_once =
        |held: &mut Allocations| Ok::<Vec<_>, Error>(rest.iter().map_while(|key| reserve(held, key).ok()).collect());
    match store.update(at_once) {
        Ok(reservations) => reservations.iter().for_each(|reservation| taken_by(&reservation.allocation)),
        // Of one that is read for the first time.
        Err(Error::Damaged { .. } | Error::TooNew { .. }) => {}
        Err(other) => panic!("{other}"),
    }
    let Some(key) = last else { return };
    let committed = store.commit(key);
    assert!(committed.is_ok(), "{committed:?}");
    let found = Store::new(folder, boot()).find(key);
    assert!(matches!(&found, Ok(Some(held)) if held.tentative_until.is_none()), "{found:?}");
    let released = store.update_for(key, |held| Ok::<_, Error>(held.release(key, NOW)));
    assert!(matches!(released, Ok(Some(_))), "{released:?}");
    let found = store.find(key);
    assert!(matches!(found, Ok(None)), "{found:?}");
}

pub(super) fn written_index() -> Vec<Vec<u8>> {
    written(|path| path.ends_with("allocations.json"))
}

pub(super) fn written_records() -> Vec<Vec<u8>> {
    let documents = written(|path| !path.ends_with("allocations.json"));
    let records = documents.iter().filter_map(|text| serde_json::from_slice::<serde_json::Value>(text).ok());
    records.filter_map(|record| record.get("allocation").map(|held| held.to_string().into_bytes())).collect()
}

pub(super) fn written_folder() -> Vec<Vec<u8>> {
    vec![written(|_| true).join(&SEPARATOR)]
}

fn written(is_expected: impl Fn(&Path) -> bool) -> Vec<Vec<u8>> {
    STATE.with(|state| {
        state.1.iter().filter(|(path, _)| is_expected(path)).map(|(_, content)| content.clone()).collect()
    })
}

/// One allocation that lasts, one that does not yet, one address that was freed.
fn fill(folder: &Path) -> Result<(), Error> {
    let store = Store::new(folder, boot());
    for (name, then) in [("a", 1), ("b", 0), ("c", 2)] {
        let Ok(key) = format!("vcn-native/{name}/eth0").parse::<AttachmentKey>() else { continue };
        store.update_for(&key, |held| held.reserve(&two_vnics(), requested(key.clone()), NOW))?;
        if then > 0 {
            store.commit(&key)?;
        }
        if then > 1 {
            store.update_for(&key, |held| Ok::<_, Error>(held.release(&key, NOW)))?;
        }
    }
    Ok(())
}

/// All files below a folder but empty ones (locks), by name.
fn files(folder: &Path) -> io::Result<Files> {
    let mut found = Vec::new();
    for path in paths(folder)? {
        let content = fs::read(&path)?;
        found.push((path, content));
    }
    found.retain(|(_, content)| !content.is_empty());
    found.sort();
    Ok(found)
}

fn paths(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true => folders.push(entry.path()),
                false => found.push(entry.path()),
            }
        }
    }
    Ok(found)
}

/// Makes these the only files.
fn replace<'a>(folder: &Path, mut contents: impl Iterator<Item = (&'a Path, &'a [u8])>) -> io::Result<()> {
    for path in paths(folder)? {
        fs::remove_file(path)?;
    }
    contents.try_for_each(|(path, content)| fs::write(path, content))
}
