//! Which plugins the configuration names, and which versions it promises.

use std::collections::BTreeSet;

use super::Note;
use crate::observed::{ChainBinary, OURS, PORTMAP};
use crate::versions::{Answer, Version};
use crate::{Contents, Error, conflist};

/// The plugins that others added to our configuration; `None` if there are none, or ours is no longer in it.
pub(super) fn additions(listed: &Contents) -> Option<Vec<String>> {
    let Contents::Plugins(types) = listed else { return None };
    let known = |name: &String| name == PORTMAP || OURS.contains(&name.as_str());
    let added: Vec<String> = types.iter().filter(|name| !known(name)).cloned().collect();
    let ours_is_there = types.iter().any(|name| OURS.contains(&name.as_str()));
    (ours_is_there && !added.is_empty()).then_some(added)
}

/// The configuration's text for the chain: our plugin, and every other that exists and answers. `None` where a plugin
/// that is listed on disk gave no sound answer this time: a moment of load must not take host ports away.
pub(super) fn rendered(
    chain: &[ChainBinary],
    listed: Option<&Contents>,
    notes: &mut Vec<Note>,
) -> Result<Option<Vec<u8>>, Error> {
    let mut names = Vec::new();
    let mut common: Option<BTreeSet<Version>> = None;
    for binary in chain {
        match suitable(&binary.answer) {
            Ok(versions) => {
                names.push(binary.name);
                common = Some(common.map_or_else(|| versions.clone(), |common| &common & versions));
            }
            Err(reason) if OURS.contains(&binary.name) => {
                return Err(Error::Version { path: binary.path.clone(), reason });
            }
            Err(reason) => {
                let plugin = binary.name.to_owned();
                let is_listed = matches!(listed, Some(Contents::Plugins(types)) if types.contains(&plugin));
                if is_listed && matches!(binary.answer, Answer::Refused(_)) {
                    notes.push(Note::KeptInChain { plugin, reason });
                    return Ok(None);
                }
                notes.push(Note::LeftOut { plugin, reason });
            }
        }
    }
    Ok(Some(conflist::render(&names, &common.unwrap_or_default())))
}

fn suitable(answer: &Answer) -> Result<&BTreeSet<Version>, String> {
    match answer {
        Answer::Missing => Err("its binary is missing".to_owned()),
        Answer::Refused(reason) => Err(reason.clone()),
        Answer::Speaks(versions) if versions.contains(&Version::CONFIGURATION) => Ok(versions),
        Answer::Speaks(_) => Err(format!("it does not speak CNI {}", Version::CONFIGURATION)),
    }
}
