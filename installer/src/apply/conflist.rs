//! Our own configuration: which plugins it lists, and which CNI versions it promises. The installer owns the whole file;
//! plugins that other programs added stay, as values and in their order, and so do keys that we do not know.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Applier, ConfChange};
use crate::error::Error;
use crate::libcni::{PLUGINS, entry_fault, key_fault, kind, loads_inline_only};
use crate::note::{Note, NoteKind};
use crate::observed::{ChainBinary, ConfAt, ConfFile, ConfText, Fault, ProvidedNetwork, drop_ins, missing, plugins};
use crate::report::ConflistState;
use crate::settings::{MAIN, OURS, Settings};
use crate::versions::{Answer, Version};

/// The plugin that sets a MAC, and the field of our entry that says so.
const TUNING: &str = "tuning";

/// It skips configurations that it cannot use.
const CRI_O: &str = "CRI-O";

impl Applier<'_> {
    /// Brings it to what the settings and the plugins of the `chain` require, once an address is `usable`.
    pub(super) fn conflist(
        &mut self,
        usable: bool,
        chain: impl FnOnce(&Settings, Option<&ConfText>) -> Vec<ChainBinary>,
    ) {
        let path = self.settings.conflist();
        let found = ConfAt::settled(&path);
        let present = found.file();
        let is_complete = present.is_some_and(|found| found.lists(&[MAIN]));
        self.report.conflist = match present {
            // Never removed: pods that were started before the agent, and their DEL, depend on it.
            Some(_) if !usable || is_complete => ConflistState::InPlace,
            None if !usable => ConflistState::Waiting,
            _ => ConflistState::Pending,
        };
        match &found {
            _ if !usable => {}
            ConfAt::Unread(reason) => self.report.failures.push(Error::InTheWay { path, reason: reason.clone() }),
            // One of our plugins that the settings no longer list would be mistaken for another program's.
            _ if self.record.is_unreadable && is_complete => {}
            _ => self.content(&chain(self.settings, present), present),
        }
        let reads_folder = usable && !present.and_then(ConfText::list).is_some_and(loads_inline_only);
        if let Some(Err(fault)) = reads_folder.then(|| drop_ins(&self.settings.cni_conf_dir, vcn::NETWORK_NAME)) {
            self.report.notes.push(refused_drop_in(fault));
        }
    }

    fn content(&mut self, chain: &[ChainBinary], present: Option<&ConfText>) {
        let disk = present.and_then(ConfText::list);
        let is_unread = |failure: &Error| matches!(failure, Error::Read { .. } | Error::Source { .. });
        let known = self.record.conflist().cloned().unwrap_or_default();
        // If another program removed the file, the record has what it listed.
        let last = disk.or(known.our_part.as_ref());
        let mut our_part = match our_part(chain, last, &mut self.report.notes) {
            Ok(our_part) => our_part,
            // If its binary could not be read, that is reported already.
            Err(_) if self.report.failures.iter().any(is_unread) => return,
            Err(error) => return self.report.failures.push(error),
        };
        let is_listed = |name: &str| self.settings.chain.iter().any(|entry| kind(entry) == Some(name));
        let is_ours = |name: &str| OURS.contains(&name) || known.plugins.contains(name) || is_listed(name);
        let is_tuned = tuning_follows(&document(&our_part, disk, &is_ours), chain);
        let entry = our_part.get_mut(PLUGINS).and_then(|plugins| plugins.get_mut(0)).and_then(Value::as_object_mut);
        entry.filter(|_| is_tuned).map(|entry| entry.insert(TUNING.to_owned(), true.into()));
        let document = document(&our_part, disk, &is_ours);
        let added = plugins(&document).filter_map(kind).filter(|kind| find(&our_part, kind).is_none());
        let added = added.collect::<Vec<_>>().join(", ");
        if !added.is_empty() {
            let message = format!("other programs added {added} to our configuration; they stay there");
            self.report.notes.push(Note::new(NoteKind::Extended, added, message));
        }
        // Compared as values: another program may have formatted the file.
        if disk == Some(&document) {
            if self.report.applied && known.our_part.as_ref() != Some(&our_part) {
                self.note_written(vcn::CONFLIST_FILE, our_part);
            }
            return;
        }
        // If we want nothing new, another program made the difference.
        let reverted = (known.our_part.as_ref() == Some(&our_part)).then(|| difference(&our_part, present));
        let (target, found) = (self.settings.conflist(), present.cloned());
        self.write(ConfChange { target, document, found, our_part, reverted });
    }
}

/// Our part of the configuration: the header, our plugin, and every listed plugin that exists and answers. A plugin that
/// is in the `last` file and gave no valid answer this time stays: a moment of load must not take host ports away.
fn our_part(chain: &[ChainBinary], last: Option<&Value>, notes: &mut Vec<Note>) -> Result<Value, Error> {
    let mut common: Option<BTreeSet<Version>> = None;
    let mut named = Vec::new();
    for ChainBinary { name, path, answer, entry } in chain {
        let unsuitable = answer.complaint();
        let note = match (&unsuitable, entry) {
            (None, _) => None,
            (Some(reason), _) if name == MAIN => {
                return Err(Error::Version { path: path.clone(), reason: reason.clone() });
            }
            (Some(reason), None) => Some(unverified(name, answer, reason)),
            (Some(reason), Some(_)) => {
                let is_failed = matches!(answer, Answer::Failed(_));
                let is_listed = last.into_iter().flat_map(plugins).any(|plugin| kind(plugin) == Some(name));
                let (note, text) = match (is_failed, is_listed) {
                    (true, true) => (NoteKind::PluginUnanswered, "stays in the chain, although"),
                    (true, false) => (NoteKind::PluginUnanswered, "is left out of the chain until it answers:"),
                    (false, _) => (NoteKind::PluginLeftOut, "is left out of the chain:"),
                };
                let note = Note::new(note, name, format!("{name} {text} {reason}"));
                if !is_failed || !is_listed {
                    notes.push(note);
                    continue;
                }
                Some(note)
            }
        };
        notes.extend(note);
        named.extend(entry.clone());
        let speaks = match answer {
            Answer::Speaks(versions) => versions.clone(),
            // What the file promised.
            Answer::Missing | Answer::Failed(_) => {
                let promised = last.and_then(|last| last.get("cniVersions")?.as_array()).into_iter().flatten();
                promised.filter_map(|version| version.as_str()?.parse().ok()).collect()
            }
        };
        common = Some(match common {
            None => speaks,
            // If they have nothing in common, there is nothing to promise that would help.
            Some(common) if common.is_disjoint(&speaks) => common,
            Some(common) => &common & &speaks,
        });
    }
    Ok(header_and_plugins(&named, &common.unwrap_or_default()))
}

/// Whether the tuning plugin comes after our plugin, also by the folder of our network: it sets a MAC that a runtime requests. Our
/// plugin is not given the rest of its chain, so that our entry says it.
fn tuning_follows(document: &Value, chain: &[ChainBinary]) -> bool {
    let in_folder =
        find(document, TUNING).is_none() && chain.iter().any(|member| member.entry.is_none() && member.name == TUNING);
    let mut after = plugins(document).filter_map(kind).skip_while(|kind| *kind != MAIN);
    in_folder || after.any(|kind| kind == TUNING)
}

/// The whole document: our part, and what other programs added to the one on disk, but for what libcni refuses: one such entry or
/// key voids the file. Our plugin stays where it is; a missing one comes behind its predecessor in our list, the first of all
/// because it makes the interface.
fn document(our_part: &Value, disk: Option<&Value>, is_ours: &dyn Fn(&str) -> bool) -> Value {
    let mut chain: Vec<Value> = Vec::new();
    for found in disk.into_iter().flat_map(plugins) {
        let Some(name) = kind(found) else { continue };
        match find(our_part, name) {
            Some(_) if chain.iter().any(|plugin| kind(plugin) == Some(name)) => {}
            Some(entry) => chain.push(entry.clone()),
            None if is_ours(name) || entry_fault(found).is_some() => {}
            None => chain.push(found.clone()),
        }
    }
    let mut at = 0;
    for entry in plugins(our_part) {
        let position = chain.iter().position(|plugin| kind(plugin) == kind(entry));
        if position.is_none() {
            chain.insert(at, entry.clone());
        }
        at = position.unwrap_or(at) + 1;
    }
    let mut document = disk.and_then(Value::as_object).cloned().unwrap_or_default();
    document.retain(|key, value| key_fault(key, value).is_none());
    document.extend(our_part.as_object().cloned().unwrap_or_default());
    document.insert(PLUGINS.to_owned(), chain.into());
    Value::Object(document)
}

/// What another program changed of our part.
fn difference(our_part: &Value, present: Option<&ConfText>) -> String {
    let Some(present) = present else { return "it was removed".to_owned() };
    let Some(disk) = present.list() else { return "it is no longer a list of plugins".to_owned() };
    let mut changes = Vec::new();
    for (key, value) in our_part.as_object().into_iter().flatten().filter(|(key, _)| *key != PLUGINS) {
        match disk.get(key) {
            None => changes.push(format!("{key} was removed")),
            Some(found) if found != value => changes.push(format!("{key} was changed to {found}")),
            Some(_) => {}
        }
    }
    let keys = disk.as_object().into_iter().flatten().filter(|(key, _)| our_part.get(key.as_str()).is_none());
    changes.extend(keys.filter_map(|(key, value)| key_fault(key, value)));
    let foreign = |found: &&Value| kind(found).is_none_or(|name| find(our_part, name).is_none());
    for (found, why) in plugins(disk).filter(foreign).filter_map(|found| Some((found, entry_fault(found)?))) {
        changes.push(format!("an entry was added that no runtime accepts, {}: {why}", kind(found).unwrap_or("?")));
    }
    for entry in plugins(our_part) {
        let name = kind(entry).unwrap_or_default();
        let found: Vec<&Value> = plugins(disk).filter(|plugin| kind(plugin) == Some(name)).collect();
        match found[..] {
            [] => changes.push(format!("plugin {name} was removed")),
            [found] if found == entry => {}
            [_] => changes.push(format!("plugin {name} was changed")),
            _ => changes.push(format!("plugin {name} is there twice")),
        }
    }
    if changes.is_empty() { "it was changed".to_owned() } else { changes.join("; ") }
}

/// About the configurations that sort before our configuration, up to the first that has all its plugins. containerd refuses all if
/// one is not valid, and stops at the first valid one; CRI-O skips those that it cannot use.
pub(super) fn before_ours(settings: &Settings, files: &[ConfFile]) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut runtime = "the runtime";
    for file in files.iter().take_while(|file| file.name.as_str() < vcn::CONFLIST_FILE) {
        let missing = missing(settings, file);
        let is_skipped = file.fault.is_some() || !missing.is_empty();
        if is_skipped && runtime == CRI_O {
            continue;
        }
        let (kind, effect) = match &file.fault {
            Some(Fault::Refused(reason)) => {
                (NoteKind::UnusableBefore, format!(" and is not a valid one, so containerd refuses all: {reason}"))
            }
            Some(Fault::Unread(reason)) => {
                let effect = "if the runtime cannot read it either, containerd refuses all";
                (NoteKind::UnusableBefore, format!(" and cannot be read from here: {reason}; {effect}"))
            }
            None if is_skipped => {
                let missing = missing.join(", ");
                let effect =
                    format!(": {runtime} uses that one, although it names plugins without a binary: {missing}");
                runtime = CRI_O;
                (NoteKind::LacksPlugins, effect)
            }
            None => {
                let gives = file.gives();
                let is_nothing = gives == ProvidedNetwork::Nothing;
                let nothing = if is_nothing { ", and its plugins make no interface: pods get no network" } else { "" };
                (NoteKind::SortsBefore { gives }, format!(": {runtime} uses that one{nothing}"))
            }
        };
        notes.push(Note::new(kind, &file.name, format!("{} sorts before our configuration{effect}", file.name)));
        if !is_skipped {
            break;
        }
    }
    notes
}

fn find<'a>(document: &'a Value, name: &str) -> Option<&'a Value> {
    plugins(document).find(|plugin| kind(plugin) == Some(name))
}

/// About a file in the folder of our network.
fn refused_drop_in(fault: Fault) -> Note {
    let file = vcn::CONFLIST_FILE;
    match fault {
        Fault::Refused(why) => {
            let message =
                format!("runtimes add the plugins of {}/*.conf to {file}, and refuse both: {why}", vcn::NETWORK_NAME);
            Note::new(NoteKind::DropInRefused, vcn::NETWORK_NAME, message)
        }
        Fault::Unread(why) => {
            let message = format!("runtimes may add plugins to {file} that cannot be read from here: {why}");
            Note::new(NoteKind::PluginUnsure, vcn::NETWORK_NAME, message)
        }
    }
}

/// About a plugin that another program added.
fn unverified(name: &str, answer: &Answer, reason: &str) -> Note {
    let added = format!("{name}, which another program added to our chain,");
    if *answer == Answer::Missing {
        let message = format!("{added} has no binary, so no pod starts by our configuration");
        return Note::new(NoteKind::PluginMissing, name, message);
    }
    let message = format!("{added} may fail for CNI {}: {reason}", Version::CONFIGURATION);
    Note::new(NoteKind::PluginUnsure, name, message)
}

/// Header and plugins. Runtimes that do not know `cniVersions` (containerd 1.6) read `cniVersion` alone: the newest that all
/// of them know, unless a plugin that another program added is older.
fn header_and_plugins(plugins: &[Value], versions: &BTreeSet<Version>) -> Value {
    let newest = versions.iter().rev().find(|version| **version <= Version::CONFIGURATION);
    json!({
        "cniVersion": newest.unwrap_or(&Version::CONFIGURATION).to_string(),
        "cniVersions": versions.iter().map(Version::to_string).collect::<Vec<_>>(),
        "name": vcn::NETWORK_NAME,
        PLUGINS: plugins,
    })
}

impl Answer {
    /// Why a plugin does not work in our configuration.
    pub(super) fn complaint(&self) -> Option<String> {
        match self {
            Self::Missing => Some("its binary is missing".to_owned()),
            Self::Failed(reason) => Some(reason.clone()),
            Self::Speaks(versions) if versions.contains(&Version::CONFIGURATION) => None,
            Self::Speaks(_) => Some(format!("it does not speak CNI {}", Version::CONFIGURATION)),
        }
    }
}
