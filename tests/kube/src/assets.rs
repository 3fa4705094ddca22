//! Where etcd and kube-apiserver are. `servers/build` alone decides; it is asked, never made to build: a test has no network.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{During, Error, Result};

/// A folder with etcd, kube-apiserver and perhaps kubectl, laid out as `KUBEBUILDER_ASSETS` is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assets(PathBuf);

impl Assets {
    /// Those of `KUBEBUILDER_ASSETS`, else those that were built here.
    ///
    /// # Errors
    /// [`Error::NoAssets`], which says how to get them.
    pub fn find() -> Result<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("servers/build");
        let output = Command::new(&script).arg("--where").output().during(|| format!("run {}", script.display()))?;
        let said = |text: &[u8]| String::from_utf8_lossy(text).trim().to_owned();
        match output.status.success() {
            true => Ok(Self(PathBuf::from(said(&output.stdout)))),
            false => Err(Error::NoAssets(said(&output.stderr))),
        }
    }

    /// This folder, which is not looked into.
    #[must_use]
    pub fn of(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    /// A program of the folder.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}
