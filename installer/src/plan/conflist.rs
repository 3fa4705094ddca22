//! Our own configuration: what it is to contain. The installer owns the whole file; plugins that other programs added stay, as values
//! and in their order, and so do keys that we do not know.

use serde_json::{Map, Value};

use super::{ConfChange, Facts, Note, Plan, Purpose, Step};
use crate::error::Error;
use crate::observed::{ConfAt, ConfText, kind};
use crate::record::{ConfigurationRecord, WINDOW};
use crate::report::ConflistState;
use crate::settings::{MAIN, OURS};

/// Readable by root alone, as the CIS benchmark asks; the runtime is root. A mode that was changed since stays.
pub(super) const MODE: u32 = 0o600;

pub(super) const PLUGINS: &str = "plugins";

impl Plan {
    pub(super) fn conflist(&mut self, facts: Facts<'_>, usable: bool) {
        let Facts { settings, observed, .. } = facts;
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
            // One of our plugins that the settings no longer list would be mistaken for another program's.
            return;
        }
        self.content(facts, present);
    }

    fn content(&mut self, facts: Facts<'_>, present: Option<&ConfText>) {
        let Facts { settings, observed, record, .. } = facts;
        let disk = present.and_then(ConfText::list);
        let entries = settings.entries();
        let wanted = match self.our_part(&entries, &observed.chain, disk.as_ref()) {
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
        let is_foreign = present.is_some_and(|found| !names_ours(found));
        let change = ConfChange {
            target: settings.conflist(),
            contents: format!("{document:#}\n").into_bytes(),
            mode: present.map_or(MODE, |found| found.mode),
            found: present.map(|found| found.contents.clone()),
            wanted,
            backup: is_foreign && !known.is_written(),
            purpose: Purpose::Ours,
            reverted,
        };
        self.write(change, known, facts);
    }

    /// Plans a change, unless repairs of the file are limited.
    pub(super) fn write(&mut self, change: ConfChange, known: &ConfigurationRecord, facts: Facts<'_>) {
        if let Some(difference) = &change.reverted
            && let Some(pause) = known.rewrites.pause(facts.now)
        {
            let (path, times) = (change.target.clone(), known.rewrites.recent(facts.now).len());
            let difference = difference.clone();
            return self.failures.push(Error::Contention { path, times, within: WINDOW, difference, pause });
        }
        if change.purpose == Purpose::Ours {
            self.conflist = ConflistState::Pending;
        }
        self.steps.push(Step::ChangeConf(Box::new(change)));
    }
}

/// The whole document: our part, and what other programs added to the one on disk. Our plugin stays where it is; a
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

pub(super) fn list(document: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    document.get(PLUGINS).and_then(Value::as_array).into_iter().flatten()
}

fn find<'a>(document: &'a Value, name: &str) -> Option<&'a Value> {
    plugins(document).find(|plugin| kind(plugin) == Some(name))
}

fn has_main(found: &ConfText) -> bool {
    found.list().is_some_and(|disk| list(&disk).any(|plugin| kind(plugin) == Some(MAIN)))
}

fn names_ours(found: &ConfText) -> bool {
    found.list().is_some_and(|disk| list(&disk).filter_map(kind).any(|kind| OURS.contains(&kind)))
}
