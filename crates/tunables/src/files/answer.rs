//! What an agent answers about the files of its policies, and how the leader confirms a change.

use serde::{Deserialize, Serialize};

use crate::document::POLICIES_MAX;

/// What became of the files; absent from an answer without files, now and in the record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FilesAnswer {
    /// The hash of the order that the agent left for a Pod.
    pub order: String,
    /// The state of the files.
    #[serde(deserialize_with = "api::lenient")]
    pub state: FilesState,
    /// Uids of policies that have files on this node, also of those that are not in the document any more.
    #[serde(deserialize_with = "api::lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<String>,
    /// When the kubelet was about to restart, in seconds since 1970; only if a change waits for its confirmation.
    #[serde(deserialize_with = "api::lenient", skip_serializing_if = "Option::is_none")]
    pub kubelet_started: Option<i64>,
}

/// The state of the files on an agent's node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FilesState {
    /// A state that only a later version knows.
    #[default]
    Unknown,
    /// Files differ, and a Pod must run.
    Due,
    /// A change is not confirmed: its Pod works, or died.
    Changing,
    /// As Changing, and units were restarted: the Pod waits for the confirmation.
    Confirmable,
    /// There is nothing to do.
    Applied,
    /// This order was rolled back. It is not tried again.
    RolledBack,
    /// All that is left to do needs a grant that the cluster's owner did not give.
    NotGranted,
}

/// The leader saw the node Ready after a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileConfirmation {
    /// The hash of the order.
    pub order: String,
}

impl FilesState {
    /// Whether a Pod changes files, or must.
    pub const fn is_unsettled(self) -> bool {
        matches!(self, Self::Due | Self::Changing | Self::Confirmable)
    }
}

impl FilesAnswer {
    /// Within the bounds of an answer.
    pub(crate) fn bound(&mut self) {
        self.owners.truncate(POLICIES_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_of_a_later_version_is_unknown() {
        let read: FilesAnswer = serde_json::from_str(r#"{"order":"a","state":"thawing","owners":["u",7]}"#).unwrap();
        assert_eq!((read.state, read.owners), (FilesState::Unknown, vec!["u".to_owned()]));
        let words = serde_json::to_string(&[FilesState::RolledBack, FilesState::NotGranted]).unwrap();
        assert_eq!(words, r#"["rolledBack","notGranted"]"#);
    }
}
