//! The result of one reconcile as data: it feeds logs, metrics, readiness, Events and the subcommands.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use vcn::{IfName, MacAddr, MachineKind, Ocid, Purpose, TableId, words};

use crate::facts::condition::{Condition, Reason};

/// The result of one reconcile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReconcileReport {
    /// What caused the reconcile.
    pub cause: Cause,
    /// When it began, in milliseconds since 1970.
    pub unix_millis: u64,
    /// How long it took.
    pub micros: u64,
    /// What it changed or, in a preview, would change.
    pub changes: Vec<Changed>,
    /// The raised conditions, the worst first.
    pub conditions: Vec<Condition>,
    /// The VNICs of the node, as configured.
    pub vnics: Vec<VnicState>,
    /// What kind of machine this is, once its VNICs are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineKind>,
    /// Whether a new pod would get an address and a network.
    pub usable: bool,
    /// The owner of the pod network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_network: Option<PodNetworkState>,
}

/// A reconcile that has finished.
#[derive(Clone, Debug)]
pub struct CompletedReconcile {
    /// When, by a clock that cannot be set.
    pub at: Instant,
    /// The report of this reconcile.
    pub report: Arc<ReconcileReport>,
}

/// Why a reconcile runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// The first reconcile of the agent.
    Start,
    /// The resync interval is over.
    Timer,
    /// A step of the last reconcile failed.
    Retry,
    /// The metadata service or the NativePodNetwork changed.
    Sources,
    /// The kernel's network changed.
    Kernel,
    /// A file that the agent writes, or that it depends on, changed.
    Files,
    /// A client requested a plan. Nothing is changed.
    Preview,
}

/// One change that a reconcile made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Changed {
    /// `link`, `route`, `rule`, `pools`, `cni`, …: bounded, for metrics.
    pub noun: String,
    /// The change, as an operator would type it.
    pub text: String,
}

/// A VNIC as the agent sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VnicState {
    /// The OCID of the VNIC.
    pub id: Ocid,
    /// The Ethernet address of the VNIC.
    pub mac: MacAddr,
    /// Whether it is the primary VNIC, which the operating system configures.
    pub primary: bool,
    /// The link of the VNIC, if it is on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<IfName>,
    /// The routing table of the VNIC, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<TableId>,
    /// The host's addresses on it.
    pub addresses: Vec<IpAddr>,
    /// The application resources that its addresses are reserved for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub application_resources: Vec<String>,
    /// Why it is not configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unmanaged: Option<UnmanagedReason>,
    /// What its VnicAttachment calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What its VnicAttachment requests it for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purpose: Option<Purpose>,
    /// The generation of the VnicAttachment that was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// Whether it is set up as requested; `None` while that is not known or may change in a moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configured: Option<bool>,
    /// Why it is not in sync.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<Reason>,
}

/// Why a VNIC is not configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnmanagedReason {
    /// Another pod network owns it.
    AnotherNetwork,
    /// Another pod network may own it; no source has decided.
    Undecided,
    /// It is new, and a VnicAttachment that is not known yet may describe it.
    PurposeUnknown,
    /// It is for one pod, and no pod has it.
    ForOnePod,
    /// A pod has it.
    InPod,
}

/// The owner of the pod network, and the installer's result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodNetworkState {
    /// Whether our pod network is to be installed.
    pub install: bool,
    /// The signal that decided, as a stable word.
    pub decided_by: String,
    /// The decision in words.
    pub reason: String,
    /// The state of the binaries and the configuration, as a stable word.
    pub status: String,
    /// Remarks that are not failures, such as a plugin left out of the chain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Now, in milliseconds since 1970.
pub(crate) fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl ReconcileReport {
    /// Whether the agent is ready: new pods can start, or the node is full.
    pub fn is_ready(&self) -> bool {
        !self.conditions.iter().any(|condition| condition.blocks() && !condition.reason.leaves_ready())
    }

    /// Notes which VNICs may be set up in a moment: no condition says that their links are missing.
    pub fn note_pending(&mut self) {
        let (vnics, conditions) = (&mut self.vnics, &self.conditions);
        let is_reported = |vnic: &VnicState| {
            let about = |it: &Condition| it.subject.as_deref() == Some(vnic.id.as_str());
            conditions.iter().any(|it| it.reason == Reason::LinkMissing && about(it))
        };
        for vnic in vnics.iter_mut().filter(|vnic| vnic.trouble == Some(Reason::LinkMissing)) {
            vnic.configured = vnic.configured.filter(|_| is_reported(vnic));
        }
    }

    /// Notes since when each condition lasts; `before` is the report of the reconcile before.
    pub fn date_conditions(&mut self, before: Option<&Self>) {
        for condition in &mut self.conditions {
            let earlier = before.and_then(|before| before.conditions.iter().find(|earlier| earlier.is_same(condition)));
            condition.since_unix_millis = earlier.map_or(Some(self.unix_millis), |earlier| earlier.since_unix_millis);
        }
    }

    /// Whether a step failed that is retried soon.
    pub fn wants_retry(&self) -> bool {
        self.conditions.iter().any(|condition| condition.reason.is_retried_soon())
    }
}

impl Changed {
    /// A change with its noun and its text.
    pub fn new(noun: &str, text: impl fmt::Display) -> Self {
        Self { noun: noun.to_owned(), text: text.to_string() }
    }
}

words!(
    Cause: Start = "start",
    Timer = "timer",
    Retry = "retry",
    Sources = "sources",
    Kernel = "kernel",
    Files = "files",
    Preview = "preview",
);
