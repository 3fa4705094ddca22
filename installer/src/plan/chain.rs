//! Which plugins our configuration lists, and which CNI versions it promises.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::conflist::{PLUGINS, list};
use super::{Note, NoteKind, Plan};
use crate::error::Error;
use crate::observed::{ChainBinary, EntryOrigin, kind};
use crate::settings::PluginEntry;
use crate::versions::{Answer, Version};

impl Plan {
    /// Our part of the configuration: the header, our plugin, and every listed plugin that exists and answers. A plugin that
    /// is in the file and gave no valid answer this time stays: a moment of load must not take host ports away.
    pub(super) fn our_part(
        &mut self,
        entries: &[PluginEntry],
        chain: &[ChainBinary],
        disk: Option<&Map<String, Value>>,
    ) -> Result<Value, Error> {
        let mut common: Option<BTreeSet<Version>> = None;
        let mut named = Vec::new();
        for binary in chain {
            let ChainBinary { name, path, answer, origin } = binary;
            let on_disk = || disk.map(promised).unwrap_or_default();
            let speaks = match (suitable(answer), origin) {
                (Ok(versions), _) => versions.clone(),
                (Err(reason), EntryOrigin::Us) => return Err(Error::Version { path: path.clone(), reason }),
                (Err(reason), EntryOrigin::OtherProgram) => {
                    self.notes.push(match answer {
                        Answer::Missing => Note::missing_in_chain(name),
                        Answer::Speaks(_) | Answer::Failed(_) => Note::unsure(name, &reason),
                    });
                    if let Answer::Speaks(versions) = answer { versions.clone() } else { on_disk() }
                }
                (Err(reason), EntryOrigin::Settings) => {
                    let listed = disk.is_some_and(|disk| list(disk).any(|plugin| kind(plugin) == Some(name)));
                    let failed = matches!(answer, Answer::Failed(_));
                    let note = if failed { NoteKind::PluginUnanswered } else { NoteKind::PluginLeftOut };
                    let text = match (failed, listed) {
                        (true, true) => format!("{name} stays in the chain, although {reason}"),
                        (true, false) => format!("{name} is left out of the chain until it answers: {reason}"),
                        (false, _) => format!("{name} is left out of the chain: {reason}"),
                    };
                    self.notes.push(Note { kind: note, subject: name.clone(), message: text });
                    if !failed || !listed {
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
        Ok(header_and_plugins(&named, &common.unwrap_or_default()))
    }
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
