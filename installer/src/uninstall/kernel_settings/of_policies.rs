//! Notes of settings that node policies changed: each has a mark that says which policy requires it, so that the agent restores
//! the earlier value when none does any more. Uninstalling restores them like all others.

use std::path::Path;

use ipam::BootId;
use serde::{Deserialize, Serialize};
use serde_json::Map;

use super::{FILE, Note, Notes, edit};
use crate::error::Error;
use crate::files::read_document;

/// A setting that a node policy changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicySetting {
    /// In the form of [`super::SettingChange::key`].
    pub key: String,
    /// Its value before the first change of this boot.
    pub before: String,
    /// The value that the kernel has after the change: a kernel may round what the policy names.
    pub set: String,
    /// The policy that set the value.
    pub mark: PolicyMark,
}

/// The policy that requires a setting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PolicyMark {
    /// The uid of the NodePolicy.
    pub policy: String,
    /// The uid of its cluster.
    pub cluster: String,
    /// The instance's OCID, where the Node names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The value that the policy names.
    pub requested: String,
    /// The value before the last change, until the controller has reached the node after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
}

/// Notes settings before they are changed in this boot. The first value of a setting is the one from before us.
///
/// # Errors
/// When the notes cannot be written: then the settings must not be changed.
pub fn note_policy_settings(data_dir: &Path, boot: &BootId, settings: &[PolicySetting]) -> Result<(), Error> {
    if settings.is_empty() {
        return Ok(());
    }
    edit(data_dir, boot, |notes| {
        for PolicySetting { key, before, set, mark } in settings {
            let note = Note { before: before.clone(), set: set.clone(), policy: None, extra: Map::new() };
            let note = notes.entry(key.clone()).or_insert(note);
            note.set.clone_from(set);
            note.policy = Some(mark.clone());
        }
    })
}

/// The settings that node policies changed in this boot, by key.
///
/// # Errors
/// When the notes cannot be read, or are damaged.
pub fn policy_settings(data_dir: &Path, boot: &BootId) -> Result<Vec<PolicySetting>, Error> {
    let notes: Option<Notes> = read_document(&data_dir.join(FILE))?;
    let notes = notes.filter(|notes| notes.boot_id.as_ref() == Some(boot)).unwrap_or_default();
    let settings = notes.settings.into_iter().filter_map(|(key, note)| {
        let Note { before, set, policy, .. } = note;
        Some(PolicySetting { key, before, set, mark: policy? })
    });
    Ok(settings.collect())
}

/// Forgets settings of node policies: they are restored, or stay as they are for good.
///
/// # Errors
/// When the notes cannot be written.
pub fn forget_policy_settings(data_dir: &Path, boot: &BootId, keys: &[String]) -> Result<(), Error> {
    if keys.is_empty() {
        return Ok(());
    }
    edit(data_dir, boot, |notes| notes.retain(|key, note| note.policy.is_none() || !keys.contains(key)))
}
