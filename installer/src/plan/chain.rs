//! Which plugins the configuration names, and which versions it promises.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Note;
use super::note::AWAITED;
use crate::document::Document;
use crate::observed::{ChainBinary, Contents, Whose};
use crate::versions::{Answer, Version};
use crate::{Entry, Error, conf_json, conflist};

/// The configuration on disk, as far as it is to be stood by.
#[derive(Debug, Default)]
pub(super) struct Disk {
    kinds: Vec<String>,
    versions: BTreeSet<Version>,
}

impl Disk {
    /// Reads it; one that cannot be read says nothing.
    pub(super) fn of(contents: &[u8]) -> Self {
        let Contents::Plugins(kinds) = Contents::parse(contents) else { return Self::default() };
        let text = conf_json::text(contents);
        let document = Document::object(&text);
        let said = document.as_ref().and_then(|document| Document::array(document.get("cniVersions")?));
        let versions = said.iter().flat_map(|said| &said.parts);
        let versions = versions.filter_map(|version| conf_json::string(version.value)?.parse().ok()).collect();
        Self { kinds, versions }
    }
}

/// What the configuration is to say: our plugin, and every other that exists and answers. A plugin that is in it on disk
/// and gave no sound answer this time stays: a moment of load must not take host ports away.
pub(super) fn wanted(
    entries: &[Entry],
    chain: &[ChainBinary],
    disk: &Disk,
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
                notes.push(match &binary.answer {
                    Answer::Missing => Note::MissingInChain { plugin: plugin() },
                    Answer::Speaks(_) | Answer::Refused(_) | Answer::Awaited => {
                        Note::Unsure { plugin: plugin(), reason }
                    }
                });
                match &binary.answer {
                    Answer::Speaks(versions) => versions.clone(),
                    Answer::Missing | Answer::Refused(_) | Answer::Awaited => disk.versions.clone(),
                }
            }
            (Err(reason), Whose::Settings) if disk.kinds.contains(&binary.name) && refused(&binary.answer) => {
                notes.push(Note::KeptInChain { plugin: plugin(), reason });
                disk.versions.clone()
            }
            (Err(reason), Whose::Settings) => {
                notes.push(match refused(&binary.answer) {
                    true => Note::Unanswered { plugin: plugin(), reason },
                    false => Note::LeftOut { plugin: plugin(), reason },
                });
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
        Answer::Awaited => Err(AWAITED.to_owned()),
        Answer::Speaks(versions) if versions.contains(&Version::CONFIGURATION) => Ok(versions),
        Answer::Speaks(_) => Err(format!("it does not speak CNI {}", Version::CONFIGURATION)),
    }
}

const fn refused(answer: &Answer) -> bool {
    matches!(answer, Answer::Refused(_))
}
