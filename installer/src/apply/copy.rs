//! `vnic-attach` on a node whose pod network is another's: a copy of that network's configuration with our plugin behind its
//! own, under a name that sorts first. The copy follows its source; the source is never written.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::{Applier, ConfChange};
use crate::args::VnicAttach;
use crate::error::Error;
use crate::libcni::PLUGINS;
use crate::note::{Note, NoteKind};
use crate::observed::{ConfAt, ConfFile, ConfText, ProvidedNetwork, guest, is_copy, missing};
use crate::settings::{Settings, VNIC_ATTACH, vnic_attach_entry};
use crate::versions::{Answer, Version};

const COPY: &str = vcn::COPIED_CONFLIST_FILE;

impl Applier<'_> {
    /// Writes the copy where a setting requests it, else removes it.
    pub(super) fn copy(&mut self, files: &[ConfFile]) {
        let path = self.settings.copied_conflist();
        let present = ConfAt::settled(&path);
        if self.settings.vnic_attach != VnicAttach::On || self.report.decision.install {
            return self.remove_copy(&path, &present);
        }
        let document = match copy_of(files, &guest(self.settings)) {
            Ok(document) => document,
            Err(reason) => {
                let message = format!("no pod gets extra interfaces by vnic-attach, {COPY} is not written: {reason}");
                self.report.notes.push(Note::new(NoteKind::NotChained, COPY, message));
                return self.remove_copy(&path, &present);
            }
        };
        self.report.notes.extend(before_copy(self.settings, files));
        let known = self.record.configurations.get(COPY).and_then(|known| known.our_part.as_ref());
        let found = match present {
            ConfAt::File(found) if is_copy(&found, known.is_some()) => Some(found),
            ConfAt::Nothing => None,
            ConfAt::File(_) => {
                let reason = "another program wrote it; move it away".to_owned();
                return self.report.failures.push(Error::InTheWay { path, reason });
            }
            ConfAt::Unread(reason) => return self.report.failures.push(Error::InTheWay { path, reason }),
        };
        if found.as_ref().and_then(ConfText::list) == Some(&document) {
            return;
        }
        let reverted = if found.is_some() { "it was changed" } else { "it was removed" };
        let reverted = (known == Some(&document)).then(|| reverted.to_owned());
        self.write(ConfChange { target: path, found, reverted, our_part: document.clone(), document });
    }

    fn remove_copy(&mut self, path: &Path, present: &ConfAt) {
        let is_recorded = self.record.configurations.contains_key(COPY);
        match present {
            ConfAt::File(found) if is_copy(found, is_recorded) => {
                let text = format!("remove {}", path.display());
                self.step(text, |applier| applier.remove(path, &found.contents));
            }
            ConfAt::Nothing if is_recorded => {
                self.step(format!("delete {COPY} from the record"), |applier| applier.forget(path));
            }
            _ => {}
        }
    }
}

/// About the configuration that the runtime uses in place of the copy. One that lacks a binary is not used in silence: CRI-O
/// skips it, and no pod of containerd starts by it.
fn before_copy(settings: &Settings, files: &[ConfFile]) -> Option<Note> {
    let mut before = files.iter().take_while(|file| file.name.as_str() < COPY);
    let file = before.find(|file| file.fault.is_none() && missing(settings, file).is_empty())?;
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
fn copy_of(files: &[ConfFile], ours: &Answer) -> Result<Value, String> {
    let source = files.iter().find(|file| file.gives_another_network());
    let source = source.ok_or("there is no configuration of another pod network yet")?;
    let name = &source.name;
    let mut list = as_list(source).ok_or_else(|| format!("{name} has no network's name"))?;
    check_version(ours, &list, name)?;
    if source.kinds().any(|kind| kind == VNIC_ATTACH) {
        return Err(format!("{name} lists {VNIC_ATTACH} itself"));
    }
    if let Some(Value::Array(plugins)) = list.get_mut(PLUGINS) {
        plugins.push(vnic_attach_entry());
    }
    Ok(Value::Object(list))
}

/// A configuration as a list, also one of a single plugin. Plugins in the folder of its network are added to the copy as well,
/// because it has the same name. If there are no others, they are listed, because our plugin comes after them.
fn as_list(source: &ConfFile) -> Option<Map<String, Value>> {
    let mut plugin = source.document.as_object()?.clone();
    if source.name.ends_with(".conflist") {
        if !plugin.contains_key(PLUGINS) {
            plugin.insert("loadOnlyInlinedPlugins".to_owned(), true.into());
            plugin.insert(PLUGINS.to_owned(), source.plugins.clone().into());
        }
        return Some(plugin);
    }
    let [version, name] = ["cniVersion", "name"].map(|key| plugin.shift_remove(key));
    let Value::Object(mut list) = json!({"name": name?, PLUGINS: [plugin]}) else { return None };
    version.map(|version| list.insert("cniVersion".to_owned(), version));
    Some(list)
}

/// Our plugin must speak the version that the configuration is written in: the runtime may use that one.
fn check_version(ours: &Answer, document: &Map<String, Value>, name: &str) -> Result<(), String> {
    let version = document.get("cniVersion").and_then(Value::as_str).unwrap_or("0.2.0");
    match (ours, version.parse::<Version>()) {
        (Answer::Speaks(versions), Ok(known)) if versions.contains(&known) => Ok(()),
        (Answer::Speaks(_), _) => Err(format!("{name} is written for CNI {version}, which our plugin does not speak")),
        (other, _) => Err(other.complaint().unwrap_or_default()),
    }
}
