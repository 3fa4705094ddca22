//! `vnic-attach` on a node whose pod network is another's: a copy of that network's configuration with our plugin behind its
//! own, under a name that sorts first. The copy follows its source; the source is never written.

use serde_json::{Map, Value, json};

use super::conflist::MODE;
use super::{ConfChange, Facts, Note, Plan, Purpose, Step};
use crate::error::Error;
use crate::observed::{ConfAt, ConfFile, ConfText, Contents, Observed, Source, kind};
use crate::record::ConfigurationRecord;
use crate::settings::{PluginEntry, VNIC_ATTACH};
use crate::versions::{Answer, Version};

impl Plan {
    /// Plans the copy where it is `wanted`, else its removal.
    pub(super) fn copy(&mut self, facts: Facts<'_>, wanted: bool) {
        let copied = wanted.then(|| copy_of(facts.observed.source.as_ref(), facts.observed.guest.as_ref()));
        let document = match copied {
            Some(Ok(document)) => document,
            Some(Err(reason)) => {
                self.notes.push(Note::not_chained(vcn::COPIED_CONFLIST_FILE, &reason));
                return self.remove_copy(facts);
            }
            None => return self.remove_copy(facts),
        };
        self.notes.extend(before_copy(facts.observed).map(Note::sorts_before_copy));
        let (settings, none) = (facts.settings, ConfigurationRecord::default());
        let path = settings.copied_conflist();
        let known = facts.record.configurations.get(vcn::COPIED_CONFLIST_FILE).unwrap_or(&none);
        let found = match &facts.observed.copy {
            ConfAt::File(found) if is_copy(found) || known.is_written() => Some(found),
            ConfAt::Nothing => None,
            ConfAt::File(_) => {
                let reason = "another program wrote it; move it away".to_owned();
                return self.failures.push(Error::InTheWay { path, reason });
            }
            ConfAt::Unread(reason) => {
                return self.failures.push(Error::InTheWay { path, reason: reason.clone() });
            }
        };
        let disk = found.and_then(ConfText::list);
        if disk.is_some() && disk.as_ref() == document.as_object() {
            return;
        }
        let reverted = (known.wanted.as_ref() == Some(&document)).then(|| match found {
            Some(_) => "it was changed".to_owned(),
            None => "it was removed".to_owned(),
        });
        let change = ConfChange {
            target: path,
            contents: format!("{document:#}\n").into_bytes(),
            mode: found.map_or(MODE, |found| found.mode),
            found: found.map(|found| found.contents.clone()),
            wanted: document,
            backup: false,
            purpose: Purpose::Copy,
            reverted,
        };
        self.write(change, known, facts);
    }

    fn remove_copy(&mut self, facts: Facts<'_>) {
        let path = facts.settings.copied_conflist();
        let recorded = facts.record.configurations.contains_key(vcn::COPIED_CONFLIST_FILE);
        match &facts.observed.copy {
            ConfAt::File(found) if recorded || is_copy(found) => {
                self.steps.push(Step::RemoveCopy { path, found: found.contents.clone() });
            }
            ConfAt::Nothing if recorded => self.steps.push(Step::Forget { path }),
            _ => {}
        }
    }
}

/// The configuration that the runtime uses in place of the copy. One that lacks a binary is not used in silence: CRI-O skips
/// it, and no pod of containerd starts by it.
fn before_copy(observed: &Observed) -> Option<&ConfFile> {
    let mut before = observed.conf_files.iter().take_while(|file| file.name.as_str() < vcn::COPIED_CONFLIST_FILE);
    before
        .find(|file| matches!(file.contents, Contents::Plugins(_)) && !observed.missing_before.contains_key(&file.name))
}

/// Whether a file that is not on record is our copy: no other program lists our plugin under this name.
pub(crate) fn is_copy(found: &ConfText) -> bool {
    found.list().is_some_and(|disk| super::conflist::list(&disk).any(|plugin| kind(plugin) == Some(VNIC_ATTACH)))
}

/// The source with our plugin as the last; the error says why there is none.
fn copy_of(source: Option<&Source>, guest: Option<&Answer>) -> Result<Value, String> {
    let source = source.ok_or("there is no configuration of another pod network yet")?;
    let text = match &source.at {
        ConfAt::File(text) => text,
        ConfAt::Unread(why) => return Err(format!("{}: {why}", source.name)),
        ConfAt::Nothing => return Err(format!("{}: it was removed while it was read", source.name)),
    };
    let mut document = match text.list() {
        Some(list) => list,
        None => of_single(text).ok_or_else(|| format!("{} is no configuration of plugins", source.name))?,
    };
    check_version(guest, &document, &source.name)?;
    let Some(Value::Array(plugins)) = document.get_mut("plugins") else {
        return Err(format!("{} is no list of plugins", source.name));
    };
    if plugins.iter().any(|plugin| kind(plugin) == Some(VNIC_ATTACH)) {
        return Err(format!("{} lists {VNIC_ATTACH} itself", source.name));
    }
    plugins.extend(PluginEntry::named(VNIC_ATTACH).map(|entry| entry.to_json()));
    Ok(Value::Object(document))
}

/// A configuration of one plugin as a list.
fn of_single(text: &ConfText) -> Option<Map<String, Value>> {
    let Value::Object(mut plugin) = crate::observed::parse(&text.contents).ok()? else { return None };
    kind(&Value::Object(plugin.clone()))?;
    let [version, name] = ["cniVersion", "name"].map(|key| plugin.shift_remove(key));
    let Value::Object(mut list) = json!({"name": name?, "plugins": [plugin]}) else { return None };
    version.map(|version| list.insert("cniVersion".to_owned(), version));
    Some(list)
}

/// Our plugin must speak the version that the configuration is written in: the runtime may use that one.
fn check_version(answer: Option<&Answer>, document: &Map<String, Value>, name: &str) -> Result<(), String> {
    let versions = match answer {
        Some(Answer::Speaks(versions)) => versions,
        Some(Answer::Failed(reason)) => return Err(reason.clone()),
        Some(Answer::Missing) | None => return Err("its binary is missing".to_owned()),
    };
    let version = document.get("cniVersion").and_then(Value::as_str).unwrap_or("0.2.0");
    match version.parse::<Version>() {
        Ok(known) if versions.contains(&known) => Ok(()),
        _ => Err(format!("{name} is written for CNI {version}, which our plugin does not speak")),
    }
}
