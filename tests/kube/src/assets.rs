//! Where etcd and kube-apiserver are. `servers/build` alone decides. Tests call it and never make it build: they have no
//! network.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/servers/build");

/// A folder with etcd, kube-apiserver and perhaps kubectl, laid out as `KUBEBUILDER_ASSETS` is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assets(PathBuf);

/// The servers being looked up, or built by a process of its own.
#[derive(Debug)]
pub struct Building {
    /// The folder's name comes this way.
    place: std::process::ChildStdout,
    said: File,
}

impl Assets {
    /// Those of `KUBEBUILDER_ASSETS`, else those that were built here.
    pub fn find() -> Result<Self> {
        let output = Command::new(SCRIPT).arg("--where").output().with_context(|| format!("run {SCRIPT}"))?;
        let said = |text: &[u8]| String::from_utf8_lossy(text).trim().to_owned();
        match output.status.success() {
            true => Ok(Self(PathBuf::from(said(&output.stdout)))),
            false => Err(anyhow!("there is no Kubernetes API server to test with: {}", said(&output.stderr))),
        }
    }

    /// The same, built where they are not there yet, which takes minutes: the caller does something else meanwhile. To be
    /// called where there is a network.
    pub fn build() -> Result<Building> {
        let doing = || format!("run {SCRIPT}");
        // A pipe that is not read yet would stop a build with much output.
        let said = tempfile::tempfile().with_context(doing)?;
        let copy = said.try_clone().with_context(doing)?;
        let mut command = Command::new(SCRIPT);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(copy).spawn().with_context(doing)?;
        let place = child.stdout.take().ok_or_else(|| anyhow!("a process without output"))?;
        Ok(Building { place, said })
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

impl Building {
    /// Waits for it; not necessarily in the process that began it.
    pub fn wait(mut self) -> Result<Assets> {
        let mut place = String::new();
        self.place.read_to_string(&mut place).with_context(|| format!("hear of {SCRIPT}"))?;
        match place.trim() {
            "" => {
                let mut said = String::new();
                let read = self.said.rewind().and_then(|()| self.said.read_to_string(&mut said));
                read.with_context(|| format!("hear of {SCRIPT}"))?;
                Err(anyhow!("there is no Kubernetes API server to test with: {}", said.trim()))
            }
            place => Ok(Assets(PathBuf::from(place))),
        }
    }
}
