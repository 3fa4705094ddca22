//! Receives a document from the leader: checks it, stores it on disk, and waits a moment for the first answer about it.

use std::sync::Arc;
use std::time::Duration;

use resident::logging::chain;
use thiserror::Error;
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::timeout;
use tunables::document::{DOCUMENT_MAX, VERSION};
use tunables::{NodeAnswer, NodeDocument};

use super::store::{DocumentStore, StoreError};
use super::{Answered, Held, NodePolicies};

/// How long a request waits for the first answer to its document.
const ANSWER_WAIT: Duration = Duration::from_secs(2);

/// Why a document is rejected.
#[derive(Debug, Error)]
pub(crate) enum DocumentRefused {
    #[error("the document has {0} bytes, more than {DOCUMENT_MAX}")]
    TooLong(usize),
    #[error("the document cannot be parsed")]
    Invalid(#[from] serde_json::Error),
    #[error("the document has version {0}, and this agent reads {VERSION}")]
    Version(u32),
    #[error("the document has no revision or no cluster")]
    Unnamed,
    #[error("the document is for instance {0}, and this is another instance")]
    OtherInstance(String),
    #[error("the document is for instance {0}, and the metadata service has not identified this instance yet")]
    UnknownInstance(String),
    #[error("the document is of a former leader: term {sent} of the Lease, and the last document is of {last}")]
    FormerLeader { sent: u32, last: u32 },
    #[error("store the document")]
    Store(#[from] StoreError),
    #[error("the task that stores the document ended")]
    Ended(#[from] JoinError),
}

impl DocumentRefused {
    /// The HTTP status, and the text of the reply.
    pub(crate) fn answer(&self) -> (u16, String) {
        let status = match self {
            Self::TooLong(_) | Self::Invalid(_) | Self::Version(_) | Self::Unnamed => 400,
            Self::OtherInstance(_) | Self::FormerLeader { .. } => 409,
            Self::UnknownInstance(_) => 503,
            Self::Store(_) | Self::Ended(_) => 500,
        };
        (status, format!("{}\n", chain(self)))
    }
}

impl NodePolicies {
    /// Takes a document; `instance` is this machine's, if it is known. After an error the earlier document holds.
    pub(crate) async fn receive(&self, body: &[u8], instance: Option<String>) -> Result<NodeAnswer, DocumentRefused> {
        let document = parse(body, instance.as_deref())?;
        let store = self.store.lock().await;
        let (keep, writer) = (document.clone(), DocumentStore::clone(&store));
        let held = self.held.borrow().document.clone();
        spawn_blocking(move || {
            // Before the stored document is taken over, it counts as well. One that cannot be read is replaced.
            let last = held.map(|held| held.term.clone());
            let last = last.or_else(|| Some(writer.read().ok()??.document.term)).unwrap_or_default();
            if keep.term.is_before(&last) {
                return Err(DocumentRefused::FormerLeader { sent: keep.term.number, last: last.number });
            }
            Ok(writer.write(&keep, instance.as_deref())?)
        })
        .await??;
        let mut number = 0;
        self.held.send_modify(|held| {
            number = held.number + 1;
            *held = Held { number, document: Some(Arc::new(document)), is_received: true };
        });
        drop(store);
        let mut answered = self.answered.subscribe();
        let _ = timeout(ANSWER_WAIT, answered.wait_for(|answered: &Answered| answered.number >= number)).await;
        Ok(self.answer())
    }
}

fn parse(body: &[u8], instance: Option<&str>) -> Result<NodeDocument, DocumentRefused> {
    if body.len() > DOCUMENT_MAX {
        return Err(DocumentRefused::TooLong(body.len()));
    }
    let document: NodeDocument = serde_json::from_slice(body)?;
    if document.version != VERSION {
        return Err(DocumentRefused::Version(document.version));
    }
    if document.revision.is_empty() || document.cluster.is_empty() {
        return Err(DocumentRefused::Unnamed);
    }
    match (&document.instance, instance) {
        (Some(named), Some(instance)) if named != instance => Err(DocumentRefused::OtherInstance(named.clone())),
        (Some(named), None) => Err(DocumentRefused::UnknownInstance(named.clone())),
        _ => Ok(document),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn document_of_a_former_leader_replaces_no_later_one() {
        let folder = tempfile::tempdir().unwrap();
        let boot = ipam::BootId::from_text("1");
        let agent = || NodePolicies::new(folder.path(), &boot);
        let document = |revision: &str, lease: &str, number: u32| {
            let term = format!(r#"{{"lease": "{lease}", "number": {number}}}"#);
            format!(r#"{{"version": 1, "revision": "{revision}", "cluster": "c", "term": {term}}}"#)
        };
        let send = async |agent: &NodePolicies, body: String| {
            agent.receive(body.as_bytes(), None).await.map_or_else(|refused| refused.answer().0, |_| 200)
        };
        let first = agent();
        assert_eq!(send(&first, document("b", "l", 7)).await, 200);
        // And the next process, which has not taken the stored document over yet.
        for agent in [first, agent()] {
            assert_eq!(send(&agent, document("a", "l", 6)).await, 409);
            let stored = agent.store.lock().await.read().unwrap().unwrap();
            assert_eq!(stored.document.revision, "b");
        }
        let agent = agent();
        assert_eq!(send(&agent, document("c", "l", 7)).await, 200, "the same leader");
        assert_eq!(send(&agent, document("d", "l", 8)).await, 200);
        assert_eq!(send(&agent, document("e", "another", 0)).await, 200, "the Lease was deleted");
    }

    fn status(body: &str, instance: Option<&str>) -> u16 {
        parse(body.as_bytes(), instance).map_or_else(|refused| refused.answer().0, |_| 200)
    }

    #[test]
    fn hostile_document_is_refused() {
        let good = r#"{"version": 1, "revision": "a", "cluster": "c", "instance": "i", "later": {"a": [1]}}"#;
        assert_eq!(status(good, Some("i")), 200, "unknown fields are ignored");
        assert_eq!(status(&good.replace("\"version\": 1", "\"version\": 2"), Some("i")), 400);
        assert_eq!(status(&good.replace("\"a\"", "\"\""), Some("i")), 400);
        assert_eq!(status(&good.replace("\"c\"", "\"\""), Some("i")), 400);
        assert_eq!(status(&good.replace("[1]", &format!("\"{}\"", "x".repeat(DOCUMENT_MAX))), Some("i")), 400);
        assert_eq!(status(&"[".repeat(10_000), Some("i")), 400);
        assert_eq!(status("{}", Some("i")), 400);
        assert_eq!(status("", Some("i")), 400);
        assert_eq!(status(good, Some("j")), 409);
        assert_eq!(status(good, None), 503);
        assert_eq!(status(&good.replace("\"instance\": \"i\", ", ""), Some("j")), 200, "a Node without provider ID");
    }
}
