//! What the agent, the controller's leader and `kubectl oke-node` agree on for captures of a node.

use serde::{Deserialize, Serialize};

use crate::node_task::PacketCapture;

/// Where the controller starts and removes captures of an agent by POST. `/v1/captures/UID` is the progress of one,
/// `/v1/captures/UID/file` its tar.
pub const AGENT_CAPTURES_PATH: &str = "/v1/captures";
/// What follows the UID in the path of a capture's tar.
pub const CAPTURE_FILE_SUFFIX: &str = "/file";
/// Where the leader sends the capture of a NodeTask: `/capture?task=NAME`, with the task's token.
pub const VIEW_CAPTURE_PATH: &str = "/capture";
/// The most captures that a node keeps.
pub const CAPTURES_MAX: usize = 2;
/// The most bytes of a capture's tar: state, packets, logs of eight units, and the heads of entries.
pub const CAPTURE_BYTES_MAX: u64 = (32 + 64 + 32 + 2) << 20;
/// The most units whose logs a capture has.
pub const LOG_UNITS_MAX: usize = 8;
/// The most bytes of a unit's log.
pub const UNIT_LOG_BYTES_MAX: u64 = 4 << 20;
/// The kinds of units that have logs.
const UNIT_KINDS: [&str; 7] = ["service", "socket", "timer", "mount", "scope", "slice", "target"];

/// Whether this is the name of a unit as NodeTasks accept it: neither an option nor a pattern, with at most 64 characters.
#[must_use]
pub fn is_unit_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@:".contains(&byte);
    name.len() <= 64
        && name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
        && name.bytes().all(is_letter)
        && name.rsplit_once('.').is_some_and(|(_, kind)| UNIT_KINDS.contains(&kind))
}

/// The longest time for which a node keeps a capture, in seconds.
pub const CAPTURE_TTL_MAX: u32 = 86_400;

/// What the controller requests from an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CaptureRequest {
    /// Reports whether a capture could start, without a start.
    Check(CaptureStart),
    /// Starts a capture; one that is there stays as it is.
    Start(CaptureStart),
    /// Stops and removes a capture, if it is there.
    Remove {
        /// The uid of the NodeTask that requested the capture.
        uid: String,
    },
}

/// A capture that starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CaptureStart {
    /// The uid of the NodeTask that requests the capture.
    pub uid: String,
    /// The node's part of a support bundle.
    #[serde(default)]
    pub state: bool,
    /// Packets of the host.
    #[serde(default)]
    pub packets: Option<PacketCapture>,
    /// Whether another program adds logs.
    #[serde(default)]
    pub logs: bool,
    /// After how many seconds it is removed, from its end on.
    pub ttl_seconds: u32,
}

/// How far a capture is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CaptureProgress {
    /// Whether everything but logs is written.
    pub is_complete: bool,
    /// Why it failed and was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The packets that were written.
    pub packets: u64,
    /// The packets that were lost because the node was too busy.
    pub lost_packets: u64,
    /// The bytes of state and packets.
    pub bytes: u64,
}
