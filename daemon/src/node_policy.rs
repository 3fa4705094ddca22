//! Settings of this node from NodePolicies: the leader sends them as one document, which the agent keeps, applies, compares each
//! minute and answers. The document holds while no controller answers, and stopping the agent undoes nothing.
//!
//! ```text
//!   channel ─▶ receive ─▶ store (node-policy.json) ─▶ run ─▶ resolve ─▶ plan ─▶ note (sysctls.json) ─▶ apply ─▶ answer
//!                                                      └──▶ links (own thread, last): journal, probes
//! ```

mod answer;
mod apply;
pub(crate) mod contact;
mod files;
mod history;
mod links;
mod plan;
mod proofs;
mod receive;
mod resolve;
mod run;
mod store;
mod sysctls;
mod writers;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use health::summary::NodePolicyState;
use installer::host_files::{FOLDER, Host};
use ipam::BootId;
use serde::Serialize;
use tokio::sync::{Mutex, Notify, watch};
use tokio::task::spawn_blocking;
use tunables::{NodeAnswer, NodeDocument};

use contact::LeaderContact;
use files::ConfirmationRefused;
use store::DocumentStore;

pub(crate) use links::has_unfinished_change;
pub(crate) use run::{PolicySurroundings, run};

/// What the channel, the readiness and the task of node policies share.
#[derive(Debug)]
pub struct NodePolicies {
    store: Mutex<DocumentStore>,
    held: watch::Sender<Held>,
    answered: watch::Sender<Answered>,
    /// The keys that policies name: no repair raises them.
    named: watch::Sender<Arc<BTreeSet<String>>>,
    is_started: AtomicBool,
    /// Notified when links come, go or change.
    wake: Notify,
    pub(crate) contact: LeaderContact,
    /// The folder of records of files.
    files: Host,
}

/// The document that holds.
#[derive(Clone, Debug, Default)]
struct Held {
    /// Counts the documents of this process.
    number: u64,
    document: Option<Arc<NodeDocument>>,
    /// Whether the leader sent it to this process.
    is_received: bool,
}

/// What became of it.
#[derive(Clone, Debug, Default)]
struct Answered {
    /// Of which document, as [`Held::number`].
    number: u64,
    answer: NodeAnswer,
}

/// What the node must have, and what became of it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PolicyDetails {
    document: NodeDocument,
    answer: NodeAnswer,
}

impl NodePolicies {
    /// With the document in a directory that outlives a boot, which [`run`] reads.
    pub(crate) fn new(data_dir: &Path, boot: &BootId) -> Self {
        let answer = NodeAnswer { version: tunables::document::VERSION, ..NodeAnswer::default() };
        Self {
            store: Mutex::new(DocumentStore::new(data_dir, boot.clone())),
            held: watch::Sender::new(Held::default()),
            answered: watch::Sender::new(Answered { number: 0, answer }),
            named: watch::Sender::default(),
            is_started: AtomicBool::default(),
            wake: Notify::new(),
            contact: LeaderContact::default(),
            files: Host::new(Path::new("/"), &data_dir.join(FOLDER)),
        }
    }

    pub(crate) fn answer(&self) -> NodeAnswer {
        self.answered.borrow().answer.clone()
    }

    /// The leader saw the node Ready after a change of files.
    pub(crate) async fn confirm_files(&self, body: Vec<u8>) -> Result<NodeAnswer, ConfirmationRefused> {
        let files = self.files.clone();
        let confirmed = spawn_blocking(move || files::confirm(&files, &body)).await;
        confirmed.unwrap_or_else(|error| Err(ConfirmationRefused::Record(error.to_string())))?;
        Ok(self.answer())
    }

    /// The document that holds, with the present answer, for the details of the node.
    pub(crate) fn details(&self) -> Option<PolicyDetails> {
        let document = self.held.borrow().document.clone()?;
        Some(PolicyDetails { document: NodeDocument::clone(&document), answer: self.answer() })
    }

    /// What the summary says about it.
    pub(crate) fn summary(&self) -> NodePolicyState {
        let Answered { answer, .. } = &*self.answered.borrow();
        NodePolicyState { document: answer.document.clone(), answer: answer.digest(), files: true }
    }

    /// Whether the document of an earlier agent is applied. The agent is not ready before.
    pub(crate) fn is_started(&self) -> bool {
        self.is_started.load(Ordering::Relaxed)
    }

    /// The keys that policies name.
    pub(crate) fn named(&self) -> watch::Receiver<Arc<BTreeSet<String>>> {
        self.named.subscribe()
    }

    /// Links came, went or changed.
    pub(crate) fn note_links(&self) {
        self.wake.notify_one();
    }
}
