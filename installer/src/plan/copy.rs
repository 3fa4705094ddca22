//! `vnic-attach` on a node whose pod network is another's: a copy of that network's configuration with our plugin behind its
//! own, under a name that sorts first. The copy follows its source; the source is never written.

use serde_json::{Map, Value, json};

use super::{ConfChange, Facts, Note, NoteKind, Plan, Step};
use crate::error::Error;
use crate::observed::{ChainBinary, ConfAt, ConfText, Observed, PLUGINS, ProvidedNetwork};
use crate::settings::{VNIC_ATTACH, vnic_attach_entry};
use crate::versions::{Answer, Version};

const COPY: &str = vcn::COPIED_CONFLIST_FILE;

impl Plan {
    /// Plans the copy where it is `wanted`, else its removal.
    pub(super) fn copy(&mut self, facts: Facts<'_>, wanted: bool) {
        let (observed, path) = (facts.observed, facts.settings.copied_conflist());
        let document = match wanted.then(|| copy_of(observed)) {
            Some(Ok(document)) => document,
            Some(Err(reason)) => {
                let message = format!("no pod gets extra interfaces by vnic-attach, {COPY} is not written: {reason}");
                self.notes.push(Note::new(NoteKind::NotChained, COPY, message));
                return self.remove_copy(facts);
            }
            None => return self.remove_copy(facts),
        };
        self.notes.extend(before_copy(observed));
        let known = facts.record.configurations.get(COPY).cloned().unwrap_or_default();
        let found = match &observed.copy {
            // No other program lists our plugin under this name.
            ConfAt::File(found) if found.lists(&[VNIC_ATTACH]) || known.wanted.is_some() => Some(found),
            ConfAt::Nothing => None,
            ConfAt::File(_) => {
                let reason = "another program wrote it; move it away".to_owned();
                return self.failures.push(Error::InTheWay { path, reason });
            }
            ConfAt::Unread(reason) => {
                return self.failures.push(Error::InTheWay { path, reason: reason.clone() });
            }
        };
        if found.and_then(ConfText::list) == Some(&document) {
            return;
        }
        let reverted = if found.is_some() { "it was changed" } else { "it was removed" };
        let change = ConfChange {
            target: path,
            found: found.cloned(),
            backup: false,
            reverted: (known.wanted.as_ref() == Some(&document)).then(|| reverted.to_owned()),
            wanted: document.clone(),
            document,
        };
        self.write(change, &known, facts);
    }

    fn remove_copy(&mut self, facts: Facts<'_>) {
        let path = facts.settings.copied_conflist();
        let is_recorded = facts.record.configurations.contains_key(COPY);
        match &facts.observed.copy {
            ConfAt::File(found) if is_recorded || found.lists(&[VNIC_ATTACH]) => {
                self.steps.push(Step::RemoveConf { path, found: found.contents.clone(), leftover: None });
            }
            ConfAt::Nothing if is_recorded => self.steps.push(Step::Forget { path }),
            _ => {}
        }
    }
}

/// About the configuration that the runtime uses in place of the copy. One that lacks a binary is not used in silence: CRI-O
/// skips it, and no pod of containerd starts by it.
fn before_copy(observed: &Observed) -> Option<Note> {
    let mut before = observed.conf_files.iter().take_while(|file| file.name.as_str() < COPY);
    let file = before.find(|file| file.fault.is_none() && file.missing.is_empty())?;
    let (name, gives) = (&file.name, file.gives());
    let instead = match gives {
        ProvidedNetwork::CalledNetwork => "request extra interfaces by a NetworkAttachmentDefinition",
        ProvidedNetwork::Network | ProvidedNetwork::Nothing => "rename it so that it sorts later",
    };
    let annotation = vcn::INTERFACES_ANNOTATION;
    let message =
        format!("{name} sorts before {COPY}, so the annotation {annotation} of pods has no effect: {instead}");
    Some(Note::new(NoteKind::SortsBeforeCopy { gives }, name, message))
}

/// The configuration that a runtime would use without our copy, with our plugin as the last; the error says why there is none.
fn copy_of(observed: &Observed) -> Result<Value, String> {
    let source = observed.conf_files.iter().find(|file| file.gives_another_network());
    let source = source.ok_or("there is no configuration of another pod network yet")?;
    let name = &source.name;
    let mut list = as_list(&source.document).ok_or_else(|| format!("{name} is no configuration of plugins"))?;
    check_version(observed.chain.first(), &list, name)?;
    if source.kinds().any(|kind| kind == VNIC_ATTACH) {
        return Err(format!("{name} lists {VNIC_ATTACH} itself"));
    }
    if let Some(Value::Array(plugins)) = list.get_mut(PLUGINS) {
        plugins.push(vnic_attach_entry());
    }
    Ok(Value::Object(list))
}

/// A configuration as a list, also one of a single plugin.
fn as_list(document: &Value) -> Option<Map<String, Value>> {
    let mut plugin = document.as_object()?.clone();
    if plugin.contains_key(PLUGINS) {
        return Some(plugin);
    }
    let [version, name] = ["cniVersion", "name"].map(|key| plugin.shift_remove(key));
    let Value::Object(mut list) = json!({"name": name?, PLUGINS: [plugin]}) else { return None };
    version.map(|version| list.insert("cniVersion".to_owned(), version));
    Some(list)
}

/// Our plugin must speak the version that the configuration is written in: the runtime may use that one.
fn check_version(ours: Option<&ChainBinary>, document: &Map<String, Value>, name: &str) -> Result<(), String> {
    let answer = ours.map_or(&Answer::Missing, |ours| &ours.answer);
    let version = document.get("cniVersion").and_then(Value::as_str).unwrap_or("0.2.0");
    match (answer, version.parse::<Version>()) {
        (Answer::Speaks(versions), Ok(known)) if versions.contains(&known) => Ok(()),
        (Answer::Speaks(_), _) => Err(format!("{name} is written for CNI {version}, which our plugin does not speak")),
        (other, _) => Err(other.complaint().unwrap_or_default()),
    }
}
