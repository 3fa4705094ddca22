//! Where this node's NativePodNetwork comes from. A file today; the trait is what an API server will implement.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use api::NativePodNetwork;
use api::npn::NpnError;
use thiserror::Error;
use vcn::Ocid;

/// The NativePodNetworks of the cluster, as far as one node may see them.
pub trait NativePodNetworks {
    /// The one of this instance; `None` while there is none. Must be cheap: it is asked every few seconds.
    ///
    /// # Errors
    /// When it cannot be read, which says nothing about whether there is one.
    fn mine(&self, instance: &Ocid) -> impl Future<Output = Result<Option<NativePodNetwork>, Error>> + Send;
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
    #[error("reading {path} as a NativePodNetwork", path = .path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: NpnError,
    },
    /// It is another instance's: its addresses would be answered for by two nodes.
    #[error("{path} is the NativePodNetwork of {found}, this instance is {instance}", path = .path.display())]
    OtherInstance {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        found: Ocid,
        /// Who we are.
        instance: Ocid,
    },
    /// The source itself is out of order.
    #[error("no NativePodNetwork can be had: {0}")]
    Unavailable(String),
}

/// A file that somebody keeps up to date.
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
}

impl NativePodNetworks for NpnFile {
    async fn mine(&self, instance: &Ocid) -> Result<Option<NativePodNetwork>, Error> {
        let path = || self.path.clone();
        let document = match tokio::fs::read(&self.path).await {
            Ok(document) => document,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(Error::Read { path: path(), source }),
        };
        let npn = NativePodNetwork::parse(&document).map_err(|source| Error::Parse { path: path(), source })?;
        if npn.instance != *instance {
            return Err(Error::OtherInstance { path: path(), found: npn.instance, instance: instance.clone() });
        }
        Ok(Some(npn))
    }
}

/// NativePodNetworks in memory. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct FakeNativePodNetworks {
    answer: Arc<Mutex<Answer>>,
}

#[derive(Clone, Debug, Default)]
struct Answer {
    npn: Option<NativePodNetwork>,
    failing: Option<String>,
}

impl FakeNativePodNetworks {
    /// From now on this is the instance's.
    pub fn set(&self, npn: Option<NativePodNetwork>) {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).npn = npn;
    }

    /// From now on every question fails with this; `None` ends it.
    pub fn set_failing(&self, why: Option<&str>) {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).failing = why.map(str::to_owned);
    }
}

impl NativePodNetworks for FakeNativePodNetworks {
    async fn mine(&self, _instance: &Ocid) -> Result<Option<NativePodNetwork>, Error> {
        let Answer { npn, failing } = self.answer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match failing {
            Some(why) => Err(Error::Unavailable(why)),
            None => Ok(npn),
        }
    }
}
