//! Which plugins the configuration names, and which versions it promises.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Note;
use crate::observed::{ChainBinary, Whose};
use crate::versions::{Answer, Version};
use crate::{Entry, Error, conflist};

/// What the configuration is to say: our plugin, and every other that exists and answers. A plugin that is in it on disk
/// and gave no sound answer this time stays: a moment of load must not take host ports away.
pub(super) fn wanted(
    entries: &[Entry],
    chain: &[ChainBinary],
    disk: Option<&Value>,
    notes: &mut Vec<Note>,
) -> Result<Value, Error> {
    let mut common: Option<BTreeSet<Version>> = None;
    let mut named = Vec::new();
    for binary in chain {
        let entry = entries.iter().find(|entry| entry.kind() == binary.name);
        let plugin = || binary.name.clone();
        let speaks = match (suitable(&binary.answer), binary.whose) {
            (Ok(versions), _) => versions.clone(),
            (Err(reason), Whose::Main) => return Err(Error::Version { path: binary.path.clone(), reason }),
            (Err(reason), Whose::Others) => {
                notes.push(Note::Unsure { plugin: plugin(), reason });
                match &binary.answer {
                    Answer::Speaks(versions) => versions.clone(),
                    Answer::Missing | Answer::Refused(_) => said(disk),
                }
            }
            (Err(reason), Whose::Settings) if is_listed(disk, &binary.name) && refused(&binary.answer) => {
                notes.push(Note::KeptInChain { plugin: plugin(), reason });
                said(disk)
            }
            (Err(reason), Whose::Settings) => {
                notes.push(Note::LeftOut { plugin: plugin(), reason });
                continue;
            }
        };
        named.extend(entry.cloned());
        common = Some(match common {
            None => speaks,
            // With nothing in common there is nothing to promise that would help.
            Some(common) if common.is_disjoint(&speaks) => common,
            Some(common) => &common & &speaks,
        });
    }
    Ok(conflist::wanted(&named, &common.unwrap_or_default()))
}

fn suitable(answer: &Answer) -> Result<&BTreeSet<Version>, String> {
    match answer {
        Answer::Missing => Err("its binary is missing".to_owned()),
        Answer::Refused(reason) => Err(reason.clone()),
        Answer::Speaks(versions) if versions.contains(&Version::CONFIGURATION) => Ok(versions),
        Answer::Speaks(_) => Err(format!("it does not speak CNI {}", Version::CONFIGURATION)),
    }
}

const fn refused(answer: &Answer) -> bool {
    matches!(answer, Answer::Refused(_))
}

fn is_listed(disk: Option<&Value>, plugin: &str) -> bool {
    let plugins = disk.and_then(|disk| disk.get("plugins")?.as_array());
    plugins.into_iter().flatten().any(|entry| entry.get("type").and_then(Value::as_str) == Some(plugin))
}

/// The versions that the configuration on disk promises.
fn said(disk: Option<&Value>) -> BTreeSet<Version> {
    let versions = disk.and_then(|disk| disk.get("cniVersions")?.as_array());
    versions.into_iter().flatten().filter_map(|version| version.as_str()?.parse().ok()).collect()
}
