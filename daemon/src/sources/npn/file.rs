//! A NativePodNetwork in a file that somebody keeps up to date.

use std::io;
use std::path::{Path, PathBuf};

use vcn::Ocid;

use super::{Answer, Error, NativePodNetworks, read};

/// The file; that there is none means that there is no NativePodNetwork yet.
#[derive(Clone, Debug)]
pub struct NpnFile {
    path: PathBuf,
}

impl NpnFile {
    /// The file at `path`; it need not exist.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl NativePodNetworks for NpnFile {
    async fn mine(&self, instance: &Ocid) -> Result<Answer, Error> {
        let path = self.path.clone();
        let document = tokio::task::spawn_blocking(move || ipam::read_named(&path)).await;
        match document.unwrap_or_else(|panic| Err(io::Error::other(panic))) {
            Ok(document) => read(&document, instance, self.path.display()).map(|npn| Answer::now(Some(npn))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Answer::now(None)),
            Err(source) => Err(Error::Read { path: self.path.clone(), source }),
        }
    }
}
