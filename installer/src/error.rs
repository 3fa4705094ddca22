//! What can fail on the node's disk and in its kernel, with the next step.

use std::error::Error as StdError;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

/// Why part of the work was not done.
#[expect(missing_docs, reason = "the message names each field")]
#[derive(Debug, Error)]
pub enum Error {
    /// A directory or file could not be read.
    #[error("reading {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A binary to install is missing in the source directory.
    #[error("reading {}: set --cni-source-dir to the directory that holds the plugin binaries", path.display())]
    Source { path: PathBuf, source: io::Error },
    /// A file could not be replaced; it is unchanged.
    #[error("putting {} in place: {action} failed{}", target.display(), next_step(source))]
    Place { target: PathBuf, action: &'static str, source: io::Error },
    /// What has one of our files' names cannot be replaced.
    #[error("putting {} in place: {reason}", path.display())]
    InTheWay { path: PathBuf, reason: String },
    /// Our own plugin does not answer VERSION, or not with the version of our configuration.
    #[error("querying {} for its CNI versions: {reason}", path.display())]
    Version { path: PathBuf, reason: String },
    /// This container cannot write the host's files of NodePolicies.
    #[error("restoring {}: /etc of the host is not mounted; run the uninstaller (manifests/uninstall)", paths.join(", "))]
    FilesNotMounted { paths: Vec<String> },
    /// Another installer holds the lock.
    #[error(
        "another installer is at work on this node, or its directories cannot be locked; the next reconcile tries again"
    )]
    Busy,
    /// Another program wrote the file at the same moment; its contents stay.
    #[error("writing {}: another program changed it at the same moment; the next reconcile reads it again", target.display())]
    Raced { target: PathBuf },
    /// Another program reverts what we write again and again.
    #[error(
        "{}: another program reverted it {times} times within {} s, so the installer backs off for {} s: {difference}; find \
         out which program writes that file (another CNI's agent?) and stop one of the two",
        path.display(), within.as_secs(), pause.as_secs()
    )]
    Contention { path: PathBuf, times: usize, within: Duration, difference: String, pause: Duration },
    /// The record cannot be parsed.
    #[error("the record {} is damaged: the installer recognizes our plugins by their file names only", path.display())]
    Record { path: PathBuf, source: serde_json::Error },
    /// The record could not be read or written.
    #[error("writing the record {}", path.display())]
    NotRecorded { path: PathBuf, source: Box<Error> },
    /// Pods were started during the uninstallation.
    #[error(
        "the uninstallation stopped, because pods started meanwhile: {pods}. They keep their network, and new pods get none; \
         drain the node and uninstall again"
    )]
    PodsCame { pods: String },
    /// A file could not be removed.
    #[error("removing {}{}", path.display(), next_step(source))]
    Remove { path: PathBuf, source: io::Error },
    /// Kernel objects could not be listed, changed or removed.
    #[error("{doing}")]
    Kernel { doing: String, source: Box<dyn StdError + Send + Sync> },
}

impl Error {
    pub(crate) fn reading(path: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Read { path: path.clone(), source }
    }

    pub(crate) fn placing(target: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self + use<> {
        let target = target.to_owned();
        move |source| Self::Place { target, action, source }
    }

    pub(crate) fn kernel<E: StdError + Send + Sync + 'static>(doing: impl Into<String>) -> impl FnOnce(E) -> Self {
        move |source| Self::Kernel { doing: doing.into(), source: Box::new(source) }
    }

    /// A stable word for reports and metrics.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Read { .. } => "unreadable",
            Self::Source { .. } => "source-missing",
            Self::Place { source, .. } => match source.kind() {
                io::ErrorKind::ReadOnlyFilesystem => "read-only",
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "no-space",
                io::ErrorKind::PermissionDenied => "denied",
                _ => "write-failed",
            },
            Self::InTheWay { .. } => "in-the-way",
            Self::Version { .. } => "version-unknown",
            Self::FilesNotMounted { .. } => "not-mounted",
            Self::Busy => "busy",
            Self::Raced { .. } => "raced",
            Self::Contention { .. } => "contention",
            Self::Record { .. } => "record-damaged",
            Self::NotRecorded { .. } => "not-recorded",
            Self::Remove { .. } => "not-removed",
            Self::PodsCame { .. } => "pods",
            Self::Kernel { .. } => "kernel",
        }
    }
}

fn next_step(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::ReadOnlyFilesystem => {
            "; make that directory writable, or use another (--cni-bin-dir and --cni-conf-dir, which the runtime's \
             configuration names too; --data-dir)"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; free space on that file system",
        io::ErrorKind::PermissionDenied => "; run as root and check the mount's SELinux type",
        _ => "",
    }
}
