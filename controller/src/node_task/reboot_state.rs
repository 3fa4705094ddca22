//! What this leader knows about its reboots. Everything that the next leader needs is in their statuses.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use api::node_task::RunningNode;
use kube::Client;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::cluster::oke_repair::OkeRepair;

/// What all reboots share.
pub(crate) struct Reboots {
    /// The API server, through a client without retries: a PodDisruptionBudget refuses like a busy server.
    pub(crate) client: Client,
    /// How OKE's repair of a node is recognized.
    pub(crate) repair: Arc<OkeRepair>,
    /// Notified when another replica should lead, because this one's node is about to be rebooted.
    pub(crate) hand_over: Arc<Notify>,
    /// By the task's uid.
    memories: Mutex<HashMap<String, RebootMemory>>,
}

#[derive(Clone, Debug)]
pub(crate) struct RebootMemory {
    /// The step as its status has it, and since when this leader has watched it.
    step: RunningNode,
    pub(crate) watched_since: Instant,
    /// Whether this leader is about to begin the reset.
    pub(crate) is_entering_reset: bool,
    pub(crate) reset: ResetState,
    pub(crate) refusal: Option<EvictionRefusal>,
    pub(crate) evicted: Option<Instant>,
    /// When the agent gave the first answer with which the proof held.
    pub(crate) proven_since: Option<Instant>,
}

/// One pod; its uid keeps a later one of the same name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PodKey {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// Why a pod was not evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EvictionRefusal {
    pub pod: PodKey,
    /// In the words of the API server, which names the PodDisruptionBudget.
    pub message: String,
}

/// What this leader knows about the request to OCI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ResetState {
    /// Nothing of it reached OCI: this leader began the step, and what it sent was refused, with this answer.
    Unsent {
        refusal: Option<Refusal>,
    },
    /// OCI may have it: another leader began the step, or an answer was lost. What is sent since is refused, with this answer.
    Uncertain {
        refusal: Option<Refusal>,
    },
    Accepted,
}

/// Why OCI refused a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub message: String,
    /// Whether another request may be accepted.
    pub is_transient: bool,
}

impl Reboots {
    /// Without any reboot yet.
    pub(crate) fn new(client: Client, repair: Arc<OkeRepair>) -> Self {
        Self { client, repair, hand_over: Arc::default(), memories: Mutex::default() }
    }

    /// What is known of a reboot in this step.
    pub(crate) fn recall(&self, uid: &str, running: &RunningNode, now: Instant) -> RebootMemory {
        let mut all = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
        let before = all.get(uid);
        if let Some(known) = before.filter(|known| known.step == *running) {
            return known.clone();
        }
        // This leader wrote the step itself, so no other one has sent a reset for it.
        let is_own = before.is_some_and(|before| before.is_entering_reset);
        let reset = match is_own {
            true => ResetState::Unsent { refusal: None },
            false => ResetState::Uncertain { refusal: None },
        };
        let memory = RebootMemory {
            step: running.clone(),
            watched_since: now,
            is_entering_reset: false,
            reset,
            refusal: None,
            evicted: None,
            proven_since: None,
        };
        all.insert(uid.to_owned(), memory.clone());
        memory
    }

    /// Changes what is known, if the reboot is still in the step.
    pub(crate) fn note(&self, uid: &str, running: &RunningNode, change: impl FnOnce(&mut RebootMemory)) {
        let mut all = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get_mut(uid).filter(|known| known.step == *running) {
            change(known);
        }
    }

    /// Forgets a reboot that ended.
    pub(crate) fn forget(&self, uid: &str) {
        self.memories.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
