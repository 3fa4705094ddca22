//! What was in a place before we put something of ours there: kept, to be given back.

use std::fs::{self, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::directory::open_file;
use crate::place::{Contents, LARGEST, NewFile, place, place_link};
use crate::{Digest, Error};

/// Where they are kept, in the data directory, each under its digest.
pub(crate) const BEFORE: &str = "before";

/// A file or link that was there before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Before {
    /// The SHA-256 of its contents, which is also its name where it is kept.
    pub(crate) digest: String,
    /// Permission bits.
    pub(crate) mode: u32,
    /// Its owner.
    pub(crate) uid: u32,
    /// Its group.
    pub(crate) gid: u32,
    /// Where it led to; then nothing else is known of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) link: Option<PathBuf>,
    /// A later version's fields.
    #[serde(flatten)]
    extra: Map<String, Value>,
}

impl Before {
    /// Keeps a file or a link; `None` where there is none.
    pub(crate) fn keep(path: &Path, data_dir: &Path) -> Result<Option<Self>, Error> {
        let read = |source| Error::Read { path: path.to_owned(), source };
        if path.is_symlink() {
            let link = Some(fs::read_link(path).map_err(read)?);
            return Ok(Some(Self { link, ..Self::default() }));
        }
        let file = match open_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(read)?,
        };
        let metadata = file.metadata().map_err(read)?;
        if !metadata.is_file() {
            return Err(Error::NoFile { target: path.to_owned() });
        }
        if metadata.len() > LARGEST {
            return Err(Error::TooLarge { path: path.to_owned(), most: LARGEST });
        }
        let digest = Digest::of_rest((&file).take(LARGEST)).map_err(read)?;
        let before = Self::of(digest, &metadata);
        let kept = before.path(data_dir);
        if let Some(folder) = kept.parent() {
            fs::create_dir_all(folder).map_err(|source| Error::Place {
                target: kept.clone(),
                action: "creating its directory",
                source,
            })?;
        }
        place(NewFile { target: &kept, contents: Contents::Of(&file, digest), mode: 0o600, owner: None })?;
        Ok(Some(before))
    }

    /// Gives it back, byte for byte, with its mode and owner. Where it is back already, its copy may be gone.
    pub(crate) fn give_back(&self, target: &Path, data_dir: &Path) -> Result<(), Error> {
        if self.is_at(target) {
            return Ok(());
        }
        if let Some(link) = &self.link {
            return place_link(target, link);
        }
        let kept = self.path(data_dir);
        let read = |source| Error::Read { path: kept.clone(), source };
        let file = open_file(&kept).map_err(read)?;
        let digest = Digest::of_rest((&file).take(LARGEST)).map_err(read)?;
        if digest.to_string() != self.digest {
            return Err(Error::Corrupt { target: kept });
        }
        let owner = Some((self.uid, self.gid));
        place(NewFile { target, contents: Contents::Of(&file, digest), mode: self.mode, owner })
    }

    /// Removes the copy; a link has none.
    pub(crate) fn remove_copy(&self, data_dir: &Path) -> Result<(), Error> {
        if self.link.is_some() {
            return Ok(());
        }
        let path = self.path(data_dir);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.map_err(|source| Error::Remove { path, source }),
        }
    }

    /// Whether it is there again.
    pub(crate) fn is_at(&self, target: &Path) -> bool {
        if self.link.is_some() || target.is_symlink() {
            return self.link.is_some() && fs::read_link(target).ok() == self.link;
        }
        let found = || {
            let metadata = fs::metadata(target).ok().filter(Metadata::is_file)?;
            Some((metadata, Digest::of_file(target).ok()?))
        };
        found().is_some_and(|(metadata, digest)| {
            let (mode, owner) = (metadata.permissions().mode() & 0o7777, (metadata.uid(), metadata.gid()));
            digest.to_string() == self.digest && mode == self.mode && owner == (self.uid, self.gid)
        })
    }

    fn of(digest: Digest, metadata: &Metadata) -> Self {
        let digest = digest.to_string();
        let mode = metadata.permissions().mode() & 0o7777;
        Self { digest, mode, uid: metadata.uid(), gid: metadata.gid(), ..Self::default() }
    }

    fn path(&self, data_dir: &Path) -> PathBuf {
        // A digest is what we wrote; a name that leads elsewhere is not followed.
        let name = self.digest.replace('/', "_");
        data_dir.join(BEFORE).join(name)
    }
}
