//! The plugins that libcni adds to a list from the folder with the name of its network, `net.d/NETWORK/*.conf` (libcni 1.3,
//! NetworkPluginConfsFromFiles). One file that it refuses voids the whole list.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use serde_json::Value;
use vcn::{excerpt, printable};

use super::Fault;
use super::conf_text::{ConfAt, stays_within};
use crate::files::entries;
use crate::libcni;

/// Of a quoted path, in characters.
const QUOTED: usize = 200;
/// More plugins than any network has. Each file may have a mebibyte.
const MAX_FILES: usize = 64;

/// Reads the entries in the folder of a network, in the order of their files.
pub(crate) fn drop_ins(directory: &Path, network: &str) -> Result<Vec<Value>, Fault> {
    let folder = folder(directory, network);
    let shown = |path: &Path| quoted(path.strip_prefix(directory).unwrap_or(path));
    if !folder.starts_with(directory) || folder.is_symlink() && !stays_within(&folder) {
        return Err(Fault::Unread(format!("the folder of its network, {}, is out of the directory", quoted(&folder))));
    }
    let paths = entries(&folder).map_err(|error| {
        let why = format!("{}: {error}", shown(&folder));
        if error.kind() == io::ErrorKind::PermissionDenied { Fault::Unread(why) } else { Fault::Refused(why) }
    })?;
    let is_folder = |path: &Path| fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    let files = paths.iter().filter(|path| path.as_os_str().as_encoded_bytes().ends_with(b".conf") && !is_folder(path));
    let files: Vec<&PathBuf> = files.collect();
    if files.len() > MAX_FILES {
        return Err(Fault::Unread(format!("{} has more than {MAX_FILES} files", shown(&folder))));
    }
    let read = files.into_iter().map(|path| {
        let refused = |why: String| Fault::Refused(format!("{}: {why}", shown(path)));
        let entry = match ConfAt::any(path) {
            ConfAt::File(found) => found.json.map_err(refused)?,
            ConfAt::Unread(why) => return Err(Fault::Unread(format!("{}: {why}", shown(path)))),
            ConfAt::Nothing => return Err(refused("it was removed while it was read".to_owned())),
        };
        libcni::entry_fault(&entry).map_or(Ok(entry), |why| Err(refused(why)))
    });
    read.collect()
}

/// The beginning of a path, on one line: a file names the network.
fn quoted(path: &Path) -> String {
    excerpt(&printable(&path.to_string_lossy()), QUOTED).into_owned()
}

/// The folder, as Go joins the paths: `..` takes a part away.
fn folder(directory: &Path, network: &str) -> PathBuf {
    let mut folder = directory.to_owned();
    for part in Path::new(network).components() {
        match part {
            Component::Normal(part) => folder.push(part),
            Component::ParentDir => _ = folder.pop(),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    folder
}
