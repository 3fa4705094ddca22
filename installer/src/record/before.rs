//! What was in a place before we put something of ours there: kept, to be given back.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::place::{NewFile, place, place_link};
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
        let contents = match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(read)?,
        };
        let metadata = fs::metadata(path).map_err(read)?;
        let before = Self::of(&contents, &metadata);
        let kept = before.path(data_dir);
        if let Some(folder) = kept.parent() {
            fs::create_dir_all(folder).map_err(|source| Error::Place {
                target: kept.clone(),
                action: "creating its directory",
                source,
            })?;
        }
        place(NewFile::ours(&kept, &contents, 0o600))?;
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
        let contents = fs::read(&kept).map_err(|source| Error::Read { path: kept.clone(), source })?;
        if Digest::of(&contents).to_string() != self.digest {
            return Err(Error::Corrupt { target: kept });
        }
        let owner = Some((self.uid, self.gid));
        place(NewFile { target, contents: &contents, mode: self.mode, owner })
    }

    fn is_at(&self, target: &Path) -> bool {
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

    fn of(contents: &[u8], metadata: &Metadata) -> Self {
        let digest = Digest::of(contents).to_string();
        let mode = metadata.permissions().mode() & 0o7777;
        Self { digest, mode, uid: metadata.uid(), gid: metadata.gid(), ..Self::default() }
    }

    fn path(&self, data_dir: &Path) -> PathBuf {
        // A digest is what we wrote; a name that leads elsewhere is not followed.
        let name = self.digest.replace('/', "_");
        data_dir.join(BEFORE).join(name)
    }
}
