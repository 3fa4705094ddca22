//! Our own configuration: what it is to contain. The whole file is ours; plugins that other programs added stay, as values
//! and in their order, and so do keys that we do not know.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{ConfChange, Facts, Note, NoteKind, Plan, Purpose, Step, contention};
use crate::observed::{AddedBy, ChainBinary, ConfAt, ConfText, kind};
use crate::record::{ConfigurationRecord, Urgency};
use crate::settings::{MAIN, OURS};
use crate::versions::{Answer, Version};
use crate::{ConflistState, Error, PluginEntry};

/// Readable by root alone, as the CIS benchmark asks; the runtime is root. A mode that was changed since stays.
const MODE: u32 = 0o600;

const PLUGINS: &str = "plugins";

impl Plan {
    pub(super) fn conflist(&mut self, facts: Facts<'_>, usable: bool) {
        let Facts { settings, observed, record, .. } = facts;
        let present = observed.conflist.file();
        self.conflist = match present {
            // Never removed: pods that were started before the agent, and their DEL, depend on it.
            Some(found) if !usable || has_main(found) => ConflistState::InPlace,
            None if !usable => ConflistState::Waiting,
            _ => ConflistState::Pending,
        };
        if !usable {
            return;
        }
        if let ConfAt::Unread(reason) = &observed.conflist {
            let (path, reason) = (settings.conflist(), reason.clone());
            return self.failures.push(Error::InTheWay { path, reason });
        }
        if !facts.record_is_known && present.is_some_and(has_main) {
            // A plugin of ours that the settings no longer list would be taken for another program's.
            return;
        }
        let disk = present.and_then(ConfText::list);
        let entries = settings.entries();
        let wanted = match self.wanted(&entries, &observed.chain, disk.as_ref()) {
            Ok(wanted) => wanted,
            // If its binary could not be read, that is reported already.
            Err(_) if !observed.failures.is_empty() => return,
            Err(error) => return self.failures.push(error),
        };
        let none = ConfigurationRecord::default();
        let known = record.configurations.get(vcn::CONFLIST_FILE).unwrap_or(&none);
        let is_ours = |kind: &str| {
            OURS.contains(&kind) || known.plugins.contains(kind) || entries.iter().any(|entry| entry.kind() == kind)
        };
        let document = document(&wanted, disk.as_ref(), &is_ours);
        let added: Vec<&str> =
            plugins(&document).filter_map(kind).filter(|kind| find(&wanted, kind).is_none()).collect();
        if !added.is_empty() {
            self.notes.push(Note::extended(&added));
        }
        // Compared as values: another program may have formatted the file.
        if disk.as_ref().is_some_and(|disk| document.as_object() == Some(disk)) {
            if known.wanted.as_ref() != Some(&wanted) {
                self.adopted = Some(wanted);
            }
            return;
        }
        // If we want nothing new, another program made the difference.
        let reverted =
            (known.wanted.as_ref() == Some(&wanted)).then(|| difference(&wanted, present.is_some(), disk.as_ref()));
        let target = present.map_or_else(|| settings.conflist(), |found| found.target.clone());
        let link = match &observed.conflist {
            ConfAt::Link(to) => Some(to.clone()),
            _ => None,
        };
        let foreign = match present {
            Some(found) => !known.is_written() && !names_ours(found),
            None => !known.is_written() && link.is_some(),
        };
        let urgency = if present.is_some_and(has_main) { Urgency::PodsStart } else { Urgency::PodsWait };
        self.write(
            ConfChange {
                name: vcn::CONFLIST_FILE.to_owned(),
                target,
                contents: format!("{document:#}\n").into_bytes(),
                mode: present.map_or(MODE, |found| found.mode),
                found: present.map(|found| found.contents.clone()),
                link,
                wanted,
                backup: foreign,
                purpose: Purpose::Ours,
                reverted,
            },
            (known, urgency),
            facts,
        );
    }

    /// Plans a change, unless repairs of the file pause.
    pub(super) fn write(
        &mut self,
        change: ConfChange,
        (known, urgency): (&ConfigurationRecord, Urgency),
        facts: Facts<'_>,
    ) {
        let paused = change
            .reverted
            .as_ref()
            .and_then(|reverted| contention(&known.rewrites, (&change.target, reverted.clone()), urgency, facts));
        if let Some(error) = paused {
            return self.failures.push(error);
        }
        if change.purpose == Purpose::Ours {
            self.conflist = ConflistState::Pending;
        }
        self.steps.push(Step::ChangeConf(Box::new(change)));
    }

    /// Our part of the configuration: the header, our plugin, and every listed plugin that exists and answers. A plugin that
    /// is in the file and gave no valid answer this time stays: a moment of load must not take host ports away.
    fn wanted(
        &mut self,
        entries: &[PluginEntry],
        chain: &[ChainBinary],
        disk: Option<&Map<String, Value>>,
    ) -> Result<Value, Error> {
        let mut common: Option<BTreeSet<Version>> = None;
        let mut named = Vec::new();
        for binary in chain {
            let ChainBinary { name, path, answer, added_by } = binary;
            let on_disk = || disk.map(promised).unwrap_or_default();
            let speaks = match (suitable(answer), added_by) {
                (Ok(versions), _) => versions.clone(),
                (Err(reason), AddedBy::Us) => return Err(Error::Version { path: path.clone(), reason }),
                (Err(reason), AddedBy::OtherProgram) => {
                    self.notes.push(match answer {
                        Answer::Missing => Note::missing_in_chain(name),
                        Answer::Speaks(_) | Answer::Failed(_) => Note::unsure(name, &reason),
                    });
                    if let Answer::Speaks(versions) = answer { versions.clone() } else { on_disk() }
                }
                (Err(reason), AddedBy::Settings) => {
                    let listed = disk.is_some_and(|disk| list(disk).any(|plugin| kind(plugin) == Some(name)));
                    let failed = matches!(answer, Answer::Failed(_));
                    let (note, text) = match (failed, listed) {
                        (true, true) => (NoteKind::PluginKept, format!("{name} stays in the chain, although {reason}")),
                        (true, false) => {
                            let text = format!("{name} is left out of the chain until it answers: {reason}");
                            (NoteKind::PluginUnanswered, text)
                        }
                        (false, _) => (NoteKind::PluginLeftOut, format!("{name} is left out of the chain: {reason}")),
                    };
                    self.notes.push(Note { kind: note, subject: name.clone(), message: text });
                    if note != NoteKind::PluginKept {
                        continue;
                    }
                    on_disk()
                }
            };
            named.extend(entries.iter().find(|entry| entry.kind() == *name).map(PluginEntry::to_json));
            common = Some(match common {
                None => speaks,
                // If they have nothing in common, there is nothing to promise that would help.
                Some(common) if common.is_disjoint(&speaks) => common,
                Some(common) => &common & &speaks,
            });
        }
        Ok(our_part(&named, &common.unwrap_or_default()))
    }
}

/// Header and plugins. Runtimes that do not know `cniVersions` (containerd 1.6) read `cniVersion` alone: the newest that all
/// of them know, unless a plugin that another program added is older.
pub(super) fn our_part(plugins: &[Value], versions: &BTreeSet<Version>) -> Value {
    let newest = versions.iter().rev().find(|version| **version <= Version::CONFIGURATION);
    json!({
        "cniVersion": newest.unwrap_or(&Version::CONFIGURATION).to_string(),
        "cniVersions": versions.iter().map(Version::to_string).collect::<Vec<_>>(),
        "name": vcn::NETWORK_NAME,
        PLUGINS: plugins,
    })
}

/// The whole document: our part, and what other programs added to the one on disk. A plugin of ours stays where it is; a
/// missing one comes behind its predecessor in our list, the first of all because it makes the interface.
pub(super) fn document(wanted: &Value, disk: Option<&Map<String, Value>>, is_ours: &dyn Fn(&str) -> bool) -> Value {
    let mut chain: Vec<Value> = Vec::new();
    for found in disk.into_iter().flat_map(list) {
        let Some(name) = kind(found) else { continue };
        match find(wanted, name) {
            Some(_) if chain.iter().any(|plugin| kind(plugin) == Some(name)) => {}
            Some(entry) => chain.push(entry.clone()),
            None if is_ours(name) => {}
            None => chain.push(found.clone()),
        }
    }
    let mut at = 0;
    for entry in plugins(wanted) {
        let position = chain.iter().position(|plugin| kind(plugin) == kind(entry));
        if position.is_none() {
            chain.insert(at, entry.clone());
        }
        at = position.unwrap_or(at) + 1;
    }
    let mut document = disk.cloned().unwrap_or_default();
    document.extend(wanted.as_object().cloned().unwrap_or_default());
    document.insert(PLUGINS.to_owned(), chain.into());
    Value::Object(document)
}

/// What another program changed of our part.
fn difference(wanted: &Value, present: bool, disk: Option<&Map<String, Value>>) -> String {
    let Some(disk) = disk else {
        return if present { "it is no list of plugins any more" } else { "it was removed" }.to_owned();
    };
    let mut changes = Vec::new();
    for (key, value) in wanted.as_object().into_iter().flatten().filter(|(key, _)| *key != PLUGINS) {
        match disk.get(key) {
            None => changes.push(format!("{key} was removed")),
            Some(found) if found != value => changes.push(format!("{key} was changed to {found}")),
            Some(_) => {}
        }
    }
    for entry in plugins(wanted) {
        let name = kind(entry).unwrap_or_default();
        let found: Vec<&Value> = list(disk).filter(|plugin| kind(plugin) == Some(name)).collect();
        match found[..] {
            [] => changes.push(format!("plugin {name} was removed")),
            [found] if found == entry => {}
            [_] => changes.push(format!("plugin {name} was changed")),
            _ => changes.push(format!("plugin {name} is there twice")),
        }
    }
    if changes.is_empty() { "it was changed".to_owned() } else { changes.join("; ") }
}

fn plugins(document: &Value) -> impl Iterator<Item = &Value> {
    document.as_object().into_iter().flat_map(list)
}

fn list(document: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    document.get(PLUGINS).and_then(Value::as_array).into_iter().flatten()
}

fn find<'a>(document: &'a Value, name: &str) -> Option<&'a Value> {
    plugins(document).find(|plugin| kind(plugin) == Some(name))
}

/// The versions that the file on disk promises.
fn promised(disk: &Map<String, Value>) -> BTreeSet<Version> {
    let versions = disk.get("cniVersions").and_then(Value::as_array).into_iter().flatten();
    versions.filter_map(|version| version.as_str()?.parse().ok()).collect()
}

fn suitable(answer: &Answer) -> Result<&BTreeSet<Version>, String> {
    match answer {
        Answer::Missing => Err("its binary is missing".to_owned()),
        Answer::Failed(reason) => Err(reason.clone()),
        Answer::Speaks(versions) if versions.contains(&Version::CONFIGURATION) => Ok(versions),
        Answer::Speaks(_) => Err(format!("it does not speak CNI {}", Version::CONFIGURATION)),
    }
}

fn has_main(found: &ConfText) -> bool {
    found.list().is_some_and(|disk| list(&disk).any(|plugin| kind(plugin) == Some(MAIN)))
}

fn names_ours(found: &ConfText) -> bool {
    found.list().is_some_and(|disk| list(&disk).filter_map(kind).any(|kind| OURS.contains(&kind)))
}
