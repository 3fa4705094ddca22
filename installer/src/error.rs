//! What can go wrong on the node's disk, with the next step for whoever has to act.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

/// Why part of the work was not done.
#[derive(Debug, Error)]
pub enum Error {
    /// A directory or file could not be read.
    #[error("reading {}", path.display())]
    Read {
        /// What was to be read.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A binary to install is not where it should come from.
    #[error("reading {}: set --source-dir to the directory that holds the plugin binaries", path.display())]
    Source {
        /// Where it should be.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A binary to install changed after it was looked at.
    #[error("{} changed while it was being installed; the next round takes it as it is then", path.display())]
    SourceChanged {
        /// Which one.
        path: PathBuf,
    },
    /// A file could not be put in place. What was there before is still there, whole.
    #[error("putting {} in place: {action} failed{}", target.display(), next_step(source))]
    Place {
        /// The file.
        target: PathBuf,
        /// What was being done.
        action: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// What was read back is not what was written: the disk or its file system is failing.
    #[error("putting {} in place: what was read back is not what was written; check the disk", target.display())]
    Corrupt {
        /// The file; what was there before is still there, whole.
        target: PathBuf,
    },
    /// Something that is no file is where a file of ours belongs.
    #[error("putting {} in place: it is a directory or special file; move it away", target.display())]
    NoFile {
        /// What is in the way.
        target: PathBuf,
    },
    /// What is in the place of a file of ours is too large to be kept.
    #[error(
        "putting {} in place: what is there is larger than {} MiB, so it is not kept to be given back one day, and not \
         replaced; move it away", path.display(), most >> 20
    )]
    TooLarge {
        /// What is in the way.
        path: PathBuf,
        /// What can be kept, in bytes.
        most: u64,
    },
    /// What is at our configuration's place cannot be replaced without knowing what it is.
    #[error("putting {} in place: {reason}", path.display())]
    Unusable {
        /// The place.
        path: PathBuf,
        /// What is there.
        reason: String,
    },
    /// Our own plugin does not answer VERSION, or not with a version that the configuration needs.
    #[error("asking {} for its CNI versions: {reason}", path.display())]
    Version {
        /// The binary asked.
        path: PathBuf,
        /// What it did instead.
        reason: String,
    },
    /// Somebody else wrote the file while we were about to.
    #[error("writing {}: somebody else wrote it at the same moment; the next round takes it as it is then", target.display())]
    Raced {
        /// The file; it is as he wrote it.
        target: PathBuf,
    },
    /// Somebody undoes what we write again and again.
    #[error(
        "{}: somebody undid our part {times} times within {} s, so it rests for {} s: {difference}; find out who writes \
         that file (another CNI's agent?) and let one of the two go",
        path.display(), within.as_secs(), rest.as_secs()
    )]
    Contention {
        /// The configuration.
        path: PathBuf,
        /// How often it was repaired.
        times: usize,
        /// In this time.
        within: Duration,
        /// What is not as we want it.
        difference: String,
        /// For how long it is left so.
        rest: Duration,
    },
    /// What we remember is no record of ours.
    #[error(
        "{} is damaged: what others added is told from ours by name alone, and what was there before us is not known",
        path.display()
    )]
    Record {
        /// The file.
        path: PathBuf,
        /// The parser's complaint.
        #[source]
        source: serde_json::Error,
    },
    /// What was done could not be remembered.
    #[error("remembering in {} what was done", path.display())]
    Unremembered {
        /// The record's file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: Box<Error>,
    },
    /// Pods were started while their network was being uninstalled.
    #[error(
        "{pods}, although there were none a moment ago: they keep their network, and no further pod gets one; drain the \
         node and uninstall again"
    )]
    PodsCame {
        /// What shows them.
        pods: String,
    },
    /// Something could not be removed.
    #[error("removing {}{}", path.display(), next_step(source))]
    Remove {
        /// What.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A drop-in that the agent wrote is where this program cannot look.
    #[error(
        "{} was written by the node agent, and its directory is not to be seen from here: give it to this program \
         (manifests/uninstall-drop-ins), or remove the file by hand and use --force", path.display()
    )]
    OutOfSight {
        /// The file.
        path: PathBuf,
    },
    /// The kernel did not answer.
    #[error("listing {what}")]
    Kernel {
        /// What was asked.
        what: &'static str,
        /// The cause.
        #[source]
        source: netlink::Error,
    },
    /// Something of ours stays in the kernel.
    #[error("taking back {what}")]
    Network {
        /// What.
        what: String,
        /// The cause.
        #[source]
        source: netlink::Error,
    },
    /// The host's network could not be looked at.
    #[error("looking at the host's network")]
    Host(#[source] Box<datapath::Error>),
}

impl Error {
    /// A stable word for reports and metrics.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Read { .. } => "unreadable",
            Self::Source { .. } => "source-missing",
            Self::SourceChanged { .. } => "source-changed",
            Self::Place { source, .. } => match source.kind() {
                io::ErrorKind::ReadOnlyFilesystem => "read-only",
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "no-space",
                io::ErrorKind::PermissionDenied => "denied",
                _ => "write-failed",
            },
            Self::Corrupt { .. } => "corrupt",
            Self::NoFile { .. } | Self::TooLarge { .. } | Self::Unusable { .. } => "in-the-way",
            Self::Version { .. } => "version-unknown",
            Self::Raced { .. } => "raced",
            Self::Contention { .. } => "contention",
            Self::Record { .. } => "record-damaged",
            Self::Unremembered { .. } => "unremembered",
            Self::Remove { .. } | Self::OutOfSight { .. } => "not-removed",
            Self::PodsCame { .. } => "pods",
            Self::Kernel { .. } | Self::Network { .. } | Self::Host(_) => "kernel",
        }
    }

    /// Whether a binary may be missing because of it.
    pub(crate) const fn concerns_binaries(&self) -> bool {
        !matches!(
            self,
            Self::Contention { .. }
                | Self::Record { .. }
                | Self::Unremembered { .. }
                | Self::Raced { .. }
                | Self::Unusable { .. }
        )
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
