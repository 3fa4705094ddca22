//! Which plugins our configuration lists, and which CNI versions it promises.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Note, NoteKind, Plan};
use crate::error::Error;
use crate::observed::{ChainBinary, PLUGINS, kind, plugins};
use crate::settings::MAIN;
use crate::versions::{Answer, Version};

impl Plan {
    /// Our part of the configuration: the header, our plugin, and every listed plugin that exists and answers. A plugin that
    /// is in the file and gave no valid answer this time stays: a moment of load must not take host ports away.
    pub(super) fn our_part(&mut self, chain: &[ChainBinary], disk: Option<&Value>) -> Result<Value, Error> {
        let mut common: Option<BTreeSet<Version>> = None;
        let mut named = Vec::new();
        for ChainBinary { name, path, answer, entry } in chain {
            let unsuitable = answer.complaint();
            let note = match (&unsuitable, entry) {
                (None, _) => None,
                (Some(reason), _) if name == MAIN => {
                    return Err(Error::Version { path: path.clone(), reason: reason.clone() });
                }
                (Some(reason), None) => Some(doubt(name, answer, reason)),
                (Some(reason), Some(_)) => {
                    let is_failed = matches!(answer, Answer::Failed(_));
                    let is_listed = disk.into_iter().flat_map(plugins).any(|plugin| kind(plugin) == Some(name));
                    let (note, text) = match (is_failed, is_listed) {
                        (true, true) => (NoteKind::PluginUnanswered, "stays in the chain, although"),
                        (true, false) => (NoteKind::PluginUnanswered, "is left out of the chain until it answers:"),
                        (false, _) => (NoteKind::PluginLeftOut, "is left out of the chain:"),
                    };
                    let note = Note::new(note, name, format!("{name} {text} {reason}"));
                    if !is_failed || !is_listed {
                        self.notes.push(note);
                        continue;
                    }
                    Some(note)
                }
            };
            self.notes.extend(note);
            named.extend(entry.clone());
            let speaks = match answer {
                Answer::Speaks(versions) => versions.clone(),
                // What the file on disk promises.
                Answer::Missing | Answer::Failed(_) => {
                    let promised = disk.and_then(|disk| disk.get("cniVersions")?.as_array()).into_iter().flatten();
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
}

/// About a plugin that another program added.
fn doubt(name: &str, answer: &Answer, reason: &str) -> Note {
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
