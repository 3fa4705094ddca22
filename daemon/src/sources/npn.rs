//! Where this node's NativePodNetwork comes from: the API server if the agent runs in a cluster, else a file.
//!
//! ```text
//!   API server ──watch──▶ InstanceWatch ──▶ cached copy on disk
//!                            │                     │ (an agent that starts)
//!   NPN_FILE ────────────────┴──▶ NpnSource ◀──────┘
//! ```

mod watch;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, bail};
use api::NativePodNetwork;
use resident::api_server::in_cluster;
use resident::logging::chain;
use serde_json::value::RawValue;
use tokio::sync::Notify;
use vcn::{NPN_COPY_FILE, Ocid};

use crate::facts::node_facts::KnownNpn;
use crate::settings::Settings;
use crate::sources::cached_copy::{CachedAnswer, CachedCopy};
use crate::sources::instance_watch::{InstanceWatch, InstanceWatcher};

pub(crate) use watch::OwnNpn;

/// How long the first question waits for the first answer.
pub(crate) const FIRST_ANSWER: Duration = Duration::from_millis(1500);

/// The source that the settings and the environment choose.
#[derive(Debug)]
pub(crate) enum NpnSource {
    /// A file; without it there is no NativePodNetwork.
    File(PathBuf),
    /// The API server, watched.
    ApiServer(InstanceWatch<OwnNpn>),
}

impl NpnSource {
    /// For the agent, with the task that must run for it, which notifies `changed`.
    pub(crate) fn watched(settings: &Settings, changed: Arc<Notify>) -> (Self, Option<InstanceWatcher<OwnNpn>>) {
        match file(settings) {
            Some(file) => (Self::File(file), None),
            None => {
                let copy = CachedCopy::new(&settings.data_dir, NPN_COPY_FILE);
                let (watch, watcher) = InstanceWatch::new(copy, changed);
                (Self::ApiServer(watch), Some(watcher))
            }
        }
    }

    /// Brings `known` up to date. Cheap: it is called every few seconds.
    pub(crate) async fn refresh(&self, instance: &Ocid, known: &mut KnownNpn) {
        match self {
            Self::File(path) => {
                let answer = read_file(path.clone(), instance).await;
                known.absorb(answer.map_err(|error| chain(error.as_ref())), Instant::now());
            }
            Self::ApiServer(watch) => *known = watch.current(instance, FIRST_ANSWER).await,
        }
    }

    /// Keeps the cached copy up to date, if the source has one. After an error, the next call retries.
    pub(crate) fn store_copy(&mut self) -> Result<(), String> {
        match self {
            Self::ApiServer(watch) => watch.store_copy(),
            Self::File(_) => Ok(()),
        }
    }
}

impl fmt::Display for NpnSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::ApiServer(_) => f.write_str("API server"),
        }
    }
}

/// The file, if that is the source.
pub(crate) fn file(settings: &Settings) -> Option<PathBuf> {
    let default = || (!in_cluster()).then(|| settings.data_dir.join("nativepodnetwork.json"));
    settings.npn_file.clone().or_else(default)
}

async fn read_file(path: PathBuf, instance: &Ocid) -> anyhow::Result<Option<NativePodNetwork>> {
    let place = path.display().to_string();
    let read = tokio::task::spawn_blocking(move || ipam::read_named(&path)).await;
    match read.unwrap_or_else(|panic| Err(io::Error::other(panic))) {
        Ok(document) => parse(&document, instance, &place).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("reading {place}")),
    }
}

/// The cached copy and its age.
fn read_copy(copy: &CachedCopy, instance: &Ocid) -> anyhow::Result<Option<(NativePodNetwork, Duration)>> {
    let place = copy.path().display().to_string();
    let answer = copy.read::<Box<RawValue>>().with_context(|| format!("reading {place}"))?;
    let age = |answer: CachedAnswer<Box<RawValue>>| {
        Ok((parse(answer.value.get().as_bytes(), instance, &place)?, answer.age(SystemTime::now())))
    };
    answer.map(age).transpose()
}

/// Parses a document, which must be `instance`'s: the addresses of another instance would be served by two nodes.
fn parse(document: &[u8], instance: &Ocid, place: &str) -> anyhow::Result<NativePodNetwork> {
    let npn = NativePodNetwork::parse(document).with_context(|| format!("reading {place} as a NativePodNetwork"))?;
    if npn.instance != *instance {
        bail!("{place} is the NativePodNetwork of {}, this instance is {instance}", npn.instance);
    }
    Ok(npn)
}
