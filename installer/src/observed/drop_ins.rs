//! The plugins that libcni adds to a list from the folder with the name of its network, `net.d/NETWORK/*.conf` (libcni 1.3,
//! NetworkPluginConfsFromFiles). One file that it refuses voids the whole list.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use super::conf_text::{ConfAt, stays_within};
use super::{Fault, libcni};
use crate::files::entries;

/// Reads the entries in the folder of a network, in the order of their files.
pub(crate) fn drop_ins(directory: &Path, network: &str) -> Result<Vec<Value>, Fault> {
    let folder = folder(directory, network);
    let shown = |path: &Path| path.strip_prefix(directory).unwrap_or(path).display().to_string();
    if !folder.starts_with(directory) || folder.is_symlink() && !stays_within(&folder) {
        return Err(Fault::Unread(format!("the folder of its network, {}, is out of the directory", folder.display())));
    }
    let paths = entries(&folder).map_err(|error| {
        let why = format!("{}: {error}", shown(&folder));
        if error.kind() == io::ErrorKind::PermissionDenied { Fault::Unread(why) } else { Fault::Refused(why) }
    })?;
    let is_folder = |path: &Path| fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    let files = paths.iter().filter(|path| path.as_os_str().as_encoded_bytes().ends_with(b".conf") && !is_folder(path));
    let read = files.map(|path| {
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
