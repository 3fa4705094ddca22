//! What one pass found and did, as data: the same value feeds logs, metrics, readiness and the subcommands.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use vcn::{IfName, MacAddr, MachineKind, Ocid, Purpose, TableId};

use crate::report::condition::{Condition, Reason};

/// One pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pass {
    /// Why it ran.
    pub cause: Cause,
    /// When it began, in milliseconds since 1970.
    pub unix_millis: u64,
    /// How long it took.
    pub micros: u64,
    /// What it changed, or, of a preview, would change.
    pub changes: Vec<Changed>,
    /// What is not as it should be, the worst first.
    pub conditions: Vec<Condition>,
    /// The VNICs.
    pub vnics: Vec<VnicState>,
    /// What kind of machine this is, once its VNICs are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineKind>,
    /// Addresses that were freed, because their pods have gone without a DEL.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub freed: Vec<IpAddr>,
    /// Whether a pod could get an address and would be connected.
    pub usable: bool,
    /// Whose pod network this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_network: Option<PodNetworkState>,
}

/// A pass that has ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// When, by a clock that nobody sets.
    pub at: Instant,
    /// The pass.
    pub pass: Arc<Pass>,
}

/// Why a pass runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// The agent started.
    Start,
    /// Time has passed.
    Timer,
    /// The last pass could not do everything.
    Retry,
    /// The metadata service or the NativePodNetwork said something new.
    Sources,
    /// The kernel's network changed.
    Kernel,
    /// Something that the agent keeps on disk, or that decides about it, changed.
    Files,
    /// The configuration changed.
    Settings,
    /// Somebody asked what would be done. Nothing is changed.
    Preview,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Changed {
    /// `link`, `route`, `rule`, `pools`, `cni`, …: bounded, for metrics.
    pub noun: String,
    /// As an operator would type or say it.
    pub text: String,
}

/// A VNIC as the agent sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VnicState {
    /// Its OCID.
    pub id: Ocid,
    /// Its Ethernet address.
    pub mac: MacAddr,
    /// The primary one is the operating system's.
    pub primary: bool,
    /// Its link, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<IfName>,
    /// Its table, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<TableId>,
    /// The host's addresses on it.
    pub addresses: Vec<IpAddr>,
    /// The application resources that its addresses are kept for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub application_resources: Vec<String>,
    /// Why nothing is done to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_alone: Option<LeftAlone>,
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
    /// Why it is not in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<Reason>,
}

/// Why a VNIC is left as it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeftAlone {
    /// It is another pod network's.
    AnotherNetwork,
    /// It may be: nobody has said yet.
    Undecided,
    /// It is for one pod, and no pod has it.
    ForOnePod,
    /// A pod has it.
    InPod,
}

/// Whose pod network this is and what the installer did about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodNetworkState {
    /// Whether ours belongs on this node.
    pub install: bool,
    /// The signal that decided: a stable word.
    pub decided_by: String,
    /// In words.
    pub reason: String,
    /// What became of the binaries and the configuration: a stable word.
    pub status: String,
    /// What somebody should know and that is no failure, such as a plugin left out of the chain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Pass {
    /// Whether the agent is ready: new pods can start, as far as this node's network goes, or the node is full.
    #[must_use]
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

    /// Whether something failed that may well work soon.
    #[must_use]
    pub fn wants_retry(&self) -> bool {
        self.conditions.iter().any(|condition| condition.reason.is_retried_soon())
    }
}

impl Changed {
    /// A change of something.
    #[must_use]
    pub fn new(noun: &str, text: impl fmt::Display) -> Self {
        Self { noun: noun.to_owned(), text: text.to_string() }
    }
}

impl Cause {
    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Timer => "timer",
            Self::Retry => "retry",
            Self::Sources => "sources",
            Self::Kernel => "kernel",
            Self::Files => "files",
            Self::Settings => "settings",
            Self::Preview => "preview",
        }
    }
}
