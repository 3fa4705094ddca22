//! The support bundle of the controller and of nodes, as one streamed tar for `kubectl oke-node bundle`.
//!
//! ```text
//!   GET /bundle?node=… ─▶ access: TokenReview ─▶ own: status, configuration, metrics, fleet ─┐
//!                                                agents ─channel─▶ nodes: a folder each ────┼─▶ pipe ─▶ kubectl
//!                                                                  index.json, at the end ──┘
//! ```
//!
//! Whatever its size, a few chunks are in memory. One bundle is written at a time; polls of agents have requests of their own.

mod access;
mod nodes;
mod own;

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use api::bundle::{BUNDLE_INDEX, BUNDLE_NODES_MAX, BundleIndex};
use channel::Client as ChannelClient;
use kube::Client;
use resident::server::{Answer, StreamRequest};
use stream::{ChunkSender, Chunks, Disconnected, end, entry, pipe};
use thiserror::Error;
use tokio::sync::Semaphore;

use crate::cluster::store::Store;
use crate::fleet::shared::SharedRoster;
use crate::report::metrics::Metrics;
use access::Access;

/// The folder of all entries.
const FOLDER: &str = "bundle";
/// The longest name of a Node, as the API server allows it.
const NAME_MAX: usize = 253;

/// What bundles are made from.
#[derive(Clone)]
pub(crate) struct BundleSources {
    /// The name of this replica.
    pub name: String,
    /// The settings that are set, as JSON.
    pub configuration: String,
    pub roster: Arc<SharedRoster>,
    pub store: Arc<Store>,
    pub metrics: Arc<Metrics>,
    /// For requests to agents.
    pub channel: ChannelClient,
}

/// Writes bundles for those who may read them.
pub(crate) struct Bundles {
    access: Access,
    sources: BundleSources,
    free: Arc<Semaphore>,
}

/// Why a bundle ends early.
#[derive(Debug, Error)]
enum BundleError {
    #[error(transparent)]
    Disconnected(#[from] Disconnected),
    #[error("write an entry")]
    Entry(#[from] io::Error),
}

impl Bundles {
    pub(crate) fn new(client: Client, namespace: &str, sources: BundleSources) -> Self {
        Self { access: Access::new(client, namespace), sources, free: Arc::new(Semaphore::new(1)) }
    }

    /// Begins to write one.
    pub(crate) async fn open(&self, request: &StreamRequest<'_>) -> Result<Chunks, Answer> {
        self.access.check(request.token).await?;
        let nodes = nodes_of(request.query).map_err(|error| Answer::text(400, error))?;
        let Ok(permit) = self.free.clone().try_acquire_owned() else {
            return Err(Answer::text(429, "another bundle is being written; retry\n"));
        };
        let (sender, chunks) = pipe();
        let sources = self.sources.clone();
        tokio::spawn(async move {
            let count = nodes.len();
            match write(&sources, nodes, sender).await {
                Ok(()) => tracing::info!(event = "bundle.sent", nodes = count),
                Err(error) => {
                    tracing::warn!(event = "bundle.failed", nodes = count, %error, "the reader got an incomplete bundle")
                }
            }
            drop(permit);
        });
        Ok(chunks)
    }
}

async fn write(sources: &BundleSources, nodes: Vec<String>, out: ChunkSender) -> Result<(), BundleError> {
    own::write(sources, &out).await?;
    let index = BundleIndex { nodes: nodes::write(sources, nodes, &out).await? };
    put(&out, BUNDLE_INDEX, &json(&index)?).await?;
    out.send(end().to_vec().into()).await?;
    Ok(out.finish().await?)
}

/// Writes an entry of this program.
async fn put(out: &ChunkSender, path: &str, content: &[u8]) -> Result<(), BundleError> {
    Ok(out.send(entry(&format!("{FOLDER}/{path}"), content)?.into()).await?)
}

fn json(value: &impl serde::Serialize) -> io::Result<Vec<u8>> {
    Ok(serde_json::to_vec_pretty(value)?)
}

/// The nodes of `node=NAME&node=NAME`, in this order, each once.
fn nodes_of(query: &str) -> Result<Vec<String>, &'static str> {
    let (mut known, mut names) = (BTreeSet::new(), Vec::new());
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let name = pair.strip_prefix("node=").ok_or("the query is node=NAME&node=NAME\n")?;
        let is_name = name.chars().all(|letter| letter.is_ascii_alphanumeric() || "-.".contains(letter));
        if name.is_empty() || name.len() > NAME_MAX || name.starts_with('.') || !is_name {
            return Err("a node's name is not valid\n");
        }
        if known.insert(name) {
            names.push(name.to_owned());
        }
        if names.len() > BUNDLE_NODES_MAX {
            return Err("a bundle has at most 20 nodes\n");
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_named_once_and_bounded() {
        let names = |query: &str| nodes_of(query).map(|names| names.join(" ")).ok();
        assert_eq!(names("").as_deref(), Some(""));
        assert_eq!(names("node=10.0.0.2&node=b&node=10.0.0.2").as_deref(), Some("10.0.0.2 b"));
        let many = |count: usize| (0..count).map(|number| format!("node=n{number}&")).collect::<String>();
        assert!(names(&many(BUNDLE_NODES_MAX)).is_some() && names(&many(BUNDLE_NODES_MAX + 1)).is_none());
        let long = format!("node={}", "a".repeat(NAME_MAX + 1));
        for query in ["node=", "node=../x", "node=..", "node=a/b", "node=a%2fb", "name=a", "a", &long] {
            assert_eq!(names(query), None, "{query}");
        }
    }
}
