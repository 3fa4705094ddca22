//! An item that is not as the document says: the words that comparison, plan and answer share.

use serde::{Deserialize, Serialize};

/// An item that is not as the document says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ItemReport {
    /// As [`crate::Item`] writes it.
    pub item: String,
    /// The name of its policy.
    pub policy: String,
    /// The state of the item.
    pub state: ItemState,
    /// The value that the kernel has, if it can be read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub current: String,
    /// The value of the document.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub desired: String,
    /// The cause, such as the likely writer or the kernel's error.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Why an item is not as the document says; the words are reasons of [`api::PolicyReason`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ItemState {
    /// A change of files was not confirmed, and undone. This and the next one are failures of the node.
    RolledBack,
    /// The kernel or device refused the value, or a probe failed.
    Failed,
    /// A change of a link was not confirmed, and undone.
    Unconfirmed,
    /// Another program sets it back.
    Reverted,
    /// Another policy of the same priority sets it.
    Conflict,
    /// A policy may not set it.
    Refused,
    /// The container lacks the mount.
    NotGranted,
    /// The kernel or device lacks it.
    Unsupported,
    /// No link is selected.
    NoLink,
    /// The value differs: with mode Report, or until the next comparison.
    Drifted,
}

vcn::words!(ItemState: RolledBack, Failed, Unconfirmed, Reverted, Conflict, Refused, NotGranted, Unsupported, NoLink, Drifted);
