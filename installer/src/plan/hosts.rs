//! Others' configurations that our plugin is chained into (a Flannel node's), and taken out of again.

use serde_json::Value;

use super::note::AWAITED;
use super::{Facts, Note, Plan, Purpose, Step, Writing};
use crate::Entry;
use crate::document::{Document, Slot};
use crate::observed::At;
use crate::record::Configuration;
use crate::versions::{Answer, Version};

impl Plan {
    pub(super) fn hosts(&mut self, facts: Facts<'_>, install: bool) {
        let Facts { settings, observed, record, .. } = facts;
        let wanted = settings.chain_into.as_deref().filter(|_| !install);
        let none = Configuration::default();
        for (name, found) in &observed.hosts {
            let known = record.configurations.get(name);
            if wanted == Some(name.as_str()) {
                let Some(entry) = settings.guest() else { continue };
                if let Err(reason) = self.chain((name, found), &entry, known.unwrap_or(&none), facts) {
                    self.notes.push(Note::NotChained { file: name.clone(), reason });
                }
            } else if let Some(known) = known {
                match unchain(name, found, known) {
                    Ok(step) => self.steps.push(step),
                    Err(reason) => self.notes.push(Note::StillChained { file: name.clone(), reason }),
                }
            }
        }
    }

    fn chain(
        &mut self,
        (name, found): (&String, &At),
        entry: &Entry,
        known: &Configuration,
        facts: Facts<'_>,
    ) -> Result<(), String> {
        let found = found.file().ok_or_else(|| found.unread().unwrap_or("there is no such file".to_owned()))?;
        let (text, list) =
            found.text().and_then(|text| Some((text, List::of(text)?))).ok_or("it is no list of plugins")?;
        speaks(facts.observed.guest.as_ref(), text)?;
        let wanted = entry.to_json();
        let contents = list.with(entry);
        if contents == text {
            return Ok(());
        }
        let mut disturbed = Vec::new();
        if known.wanted.as_ref() == Some(&wanted) && !known.is_pending() {
            disturbed.push(match list.position(entry.kind()) {
                None => format!("plugin {} was removed", entry.kind()),
                Some(_) => format!("plugin {} was changed", entry.kind()),
            });
        }
        let (target, mode, contents_found) = (found.target.clone(), found.mode, Some(found.contents.clone()));
        let (name, purpose, link) = (name.clone(), Purpose::Chain, None);
        let writing = Writing { name, target, contents, mode, found: contents_found, link, wanted, purpose, disturbed };
        self.write(writing, known, facts);
        Ok(())
    }
}

/// Taking our plugin out: where nobody changed the file since, it becomes what it was before; else only our entry goes. The
/// reason where the file cannot be looked at.
pub(crate) fn unchain(name: &str, found: &At, known: &Configuration) -> Result<Step, String> {
    let forget = Ok(Step::Forget { name: name.to_owned() });
    if let Some(reason) = found.unread() {
        return Err(reason);
    }
    let (Some(found), Some(wanted)) = (found.file(), known.wanted.clone()) else { return forget };
    let kind = wanted.get("type").and_then(Value::as_str).unwrap_or_default();
    let Some((text, list)) = found.text().and_then(|text| Some((text, List::of(text)?))) else { return forget };
    let contents = list.without(kind);
    if contents == text {
        return forget;
    }
    Ok(Step::WriteConflist(Box::new(Writing {
        name: name.to_owned(),
        target: found.target.clone(),
        contents,
        mode: found.mode,
        found: Some(found.contents.clone()),
        link: None,
        wanted,
        purpose: Purpose::Unchain,
        disturbed: Vec::new(),
    })))
}

/// A list of plugins, somebody else's.
struct List<'a> {
    document: Document<'a>,
    plugins: Document<'a>,
    kinds: Vec<String>,
}

impl<'a> List<'a> {
    fn of(text: &'a str) -> Option<Self> {
        let document = Document::object(text)?;
        let plugins = Document::array(document.get("plugins")?)?;
        let kinds = plugins.parts.iter().map(|part| Document::object(part.value)?.kind()).collect::<Option<_>>()?;
        Some(Self { document, plugins, kinds })
    }

    fn position(&self, kind: &str) -> Option<usize> {
        self.kinds.iter().position(|name| name == kind)
    }

    /// With our entry as we want it: where it is, or last.
    fn with(&self, entry: &Entry) -> String {
        let value = entry.to_json();
        let mut slots: Vec<Slot> = (0..self.kinds.len()).map(Slot::Keep).collect();
        let at = self.position(entry.kind());
        match (at, at.and_then(|at| self.plugins.parts.get(at))) {
            (Some(_), Some(part)) if serde_json::from_str::<Value>(part.value).is_ok_and(|found| found == value) => {}
            (Some(at), _) => {
                let changed = Slot::Change(at, value.to_string());
                slots.splice(at..=at, [changed]);
            }
            (None, _) => slots.push(Slot::New { key: None, value }),
        }
        self.text(&slots)
    }

    fn without(&self, kind: &str) -> String {
        let others = self.kinds.iter().enumerate().filter(|(_, name)| *name != kind);
        self.text(&others.map(|(at, _)| Slot::Keep(at)).collect::<Vec<_>>())
    }

    fn text(&self, slots: &[Slot]) -> String {
        let plugins = self.plugins.with(slots);
        let changed = self.document.position("plugins");
        let slots: Vec<Slot> = (0..self.document.parts.len())
            .map(|at| if Some(at) == changed { Slot::Change(at, plugins.clone()) } else { Slot::Keep(at) })
            .collect();
        self.document.with(&slots)
    }
}

/// Whether our plugin speaks the version that the configuration is written in: the runtime may choose that one.
fn speaks(answer: Option<&Answer>, text: &str) -> Result<(), String> {
    let versions = match answer {
        Some(Answer::Speaks(versions)) => versions,
        Some(Answer::Refused(reason)) => return Err(reason.clone()),
        Some(Answer::Awaited) => return Err(AWAITED.to_owned()),
        Some(Answer::Missing) | None => return Err("its binary is missing".to_owned()),
    };
    let version = Document::object(text).and_then(|document| document.string("cniVersion"));
    let version = version.unwrap_or_else(|| "0.2.0".to_owned());
    match version.parse::<Version>() {
        Ok(version) if versions.contains(&version) => Ok(()),
        _ => Err(format!("it is written for CNI {version}, which our plugin does not speak")),
    }
}
