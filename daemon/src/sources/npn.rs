//! Where this node's NativePodNetwork comes from: the API server where the agent runs in a cluster, or a file.
//!
//! ```text
//!   API server ──watch──▶ Watcher ──▶ the last good one, in memory and on disk (Kept) ──▶ ClusterNpn ─┐
//!   NPN_FILE ────────────────────────────────────────────────────────────────────────────▶ NpnFile ───┴─▶ mine()
//! ```

mod cluster;
mod fake;
mod file;
mod keeper;
mod kept;
mod watcher;

use std::fmt;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::NativePodNetwork;
use api::npn::NpnError;
use thiserror::Error;
use tokio::sync::Notify;
use vcn::Ocid;

use crate::settings::Settings;
use resident::api_server::in_cluster;

pub use cluster::ClusterNpn;
pub(crate) use cluster::NPN_AWAITED;
pub use fake::FakeNativePodNetworks;
pub use file::NpnFile;
pub use kept::Kept;
pub use watcher::Watcher;
pub(crate) use watcher::why;

/// The NativePodNetworks of the cluster, as far as one node may see them.
pub trait NativePodNetworks {
    /// The one of this instance. Must be cheap: it is asked every few seconds.
    ///
    /// # Errors
    /// When nothing is known of it, which says nothing about whether there is one.
    fn mine(&self, instance: &Ocid) -> impl Future<Output = Result<Answer, Error>> + Send;

    /// Keeps for the next agent what could not be kept when it came, where a source keeps anything. As cheap, and asked as
    /// often.
    ///
    /// # Errors
    /// Why it still cannot be.
    fn keep(&self) -> impl Future<Output = Result<(), String>> + Send {
        std::future::ready(Ok(()))
    }
}

/// What is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// It; `None` while there is none.
    pub npn: Option<NativePodNetwork>,
    /// How long ago that was so for sure.
    pub age: Duration,
    /// Why it is not known better.
    pub trouble: Option<String>,
}

impl Answer {
    /// It is so now.
    #[must_use]
    pub const fn now(npn: Option<NativePodNetwork>) -> Self {
        Self { npn, age: Duration::ZERO, trouble: None }
    }
}

/// Why it could not be read.
#[derive(Debug, Error)]
pub enum Error {
    /// The file is there and cannot be read.
    #[error("reading {path}", path = .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is no NativePodNetwork.
    #[error("reading {place} as a NativePodNetwork")]
    Parse {
        /// Where it is.
        place: String,
        /// Why.
        #[source]
        source: NpnError,
    },
    /// It is another instance's: its addresses would be answered for by two nodes.
    #[error("{place} is the NativePodNetwork of {found}, this instance is {instance}")]
    OtherInstance {
        /// Where it is.
        place: String,
        /// Whose it is.
        found: Ocid,
        /// Who we are.
        instance: Ocid,
    },
    /// The source itself is out of order.
    #[error("no NativePodNetwork can be had: {0}")]
    Unavailable(String),
}

/// Reads a document, which must be `instance`'s.
fn read(document: &[u8], instance: &Ocid, place: impl fmt::Display) -> Result<NativePodNetwork, Error> {
    let place = place.to_string();
    let npn = match NativePodNetwork::parse(document) {
        Ok(npn) => npn,
        Err(source) => return Err(Error::Parse { place, source }),
    };
    match npn.instance == *instance {
        true => Ok(npn),
        false => Err(Error::OtherInstance { place, found: npn.instance, instance: instance.clone() }),
    }
}

/// The source that the settings and the surroundings choose.
#[derive(Debug)]
pub enum Source {
    /// A file.
    File(NpnFile),
    /// The API server, watched.
    Cluster(ClusterNpn),
    /// What was last seen there, for whoever only looks.
    Kept(Kept),
}

impl Source {
    /// For the agent; with whoever must run for it, and tells `published` what is new.
    #[must_use]
    pub fn watched(settings: &Settings, published: Arc<Notify>) -> (Self, Option<Watcher>) {
        match file(settings) {
            Some(file) => (Self::File(NpnFile::new(&file)), None),
            None => {
                let (cluster, watcher) = Watcher::new(Kept::new(&settings.data_dir), published);
                (Self::Cluster(cluster), Some(watcher))
            }
        }
    }

    /// For one look without an agent: the API server is not asked.
    #[must_use]
    pub fn at_hand(settings: &Settings) -> Self {
        match file(settings) {
            Some(file) => Self::File(NpnFile::new(&file)),
            None => Self::Kept(Kept::new(&settings.data_dir)),
        }
    }
}

/// The file, where that is the source.
#[must_use]
pub fn file(settings: &Settings) -> Option<PathBuf> {
    let default = || (!in_cluster()).then(|| settings.data_dir.join("nativepodnetwork.json"));
    settings.npn_file.clone().or_else(default)
}

impl NativePodNetworks for Source {
    async fn mine(&self, instance: &Ocid) -> Result<Answer, Error> {
        match self {
            Self::File(file) => file.mine(instance).await,
            Self::Cluster(cluster) => cluster.mine(instance).await,
            Self::Kept(kept) => kept.mine(instance).await,
        }
    }

    async fn keep(&self) -> Result<(), String> {
        match self {
            Self::File(file) => file.keep().await,
            Self::Cluster(cluster) => cluster.keep().await,
            Self::Kept(kept) => kept.keep().await,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => file.path().display().fmt(f),
            Self::Cluster(_) => f.write_str("API server"),
            Self::Kept(kept) => kept.path().display().fmt(f),
        }
    }
}
