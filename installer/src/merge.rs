//! Three texts make one: what we last wrote, what is on disk, what we want. Ours is made as we want it; what others put
//! there (plugins before and behind ours, keys, the order, numbers of any size) stays to the byte.

#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

use crate::Entry;
use crate::document::{Document, Slot};
use crate::entry::OURS;

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Merged {
    /// The new text.
    pub(crate) text: String,
    /// The plugins that others put there, in order.
    pub(crate) foreign: Vec<String>,
    /// Wanted plugins that others had put there first: theirs do the work.
    pub(crate) provided: Vec<String>,
    /// What somebody did to our part since we wrote it.
    pub(crate) disturbed: Vec<String>,
}

/// What a list of plugins is to become.
#[derive(Clone, Debug)]
pub(crate) struct Merge<'a> {
    /// What we last wrote; when that is not known, nothing counts as a disturbance.
    pub(crate) last: Asked<'a>,
    /// What we want.
    pub(crate) wanted: &'a Value,
    /// Plugins that are taken for ours where what we last wrote is not known.
    pub(crate) familiar: &'a [Entry],
}

impl Merge<'_> {
    /// Merges; `None` where the text is no list of plugins.
    pub(crate) fn into_text(self, disk: &str) -> Option<Merged> {
        let Self { last, wanted, familiar } = self;
        let document = Document::object(disk)?;
        let plugins = Document::array(document.get(PLUGINS)?)?;
        let mut disturbed = Vec::new();
        let entries = Entries::of(&plugins, (&last, wanted), familiar)?;
        let slots = entries.slots(&mut disturbed);
        let plugins_text = plugins.with(&slots);
        let (wanted, plugins_now) = (wanted.as_object()?, Some((PLUGINS, plugins_text.as_str())));
        let text = members(&document, (&last, wanted), plugins_now, &mut Told { path: "", disturbed: &mut disturbed });
        Some(Merged { text, foreign: entries.foreign(), provided: entries.provided(), disturbed })
    }
}

const PLUGINS: &str = "plugins";

/// What we asked for before, at one place of a document. Who was killed while he wrote leaves two of which either may be
/// there; that one of them has nothing at this place counts, too.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked<'a>(Vec<Option<&'a Value>>);

impl<'a> Asked<'a> {
    /// Of whole documents.
    pub(crate) const fn new(documents: Vec<Option<&'a Value>>) -> Self {
        Self(documents)
    }

    fn is_known(&self) -> bool {
        self.0.iter().any(Option::is_some)
    }

    /// The same of a member.
    fn member(&self, key: &str) -> Self {
        Self(self.0.iter().map(|value| value.and_then(|value| value.get(key))).collect())
    }

    /// The same of a plugin of the list.
    fn plugin(&self, kind: &str) -> Self {
        let plugin = |document: &'a Value| listed(document).into_iter().find(|(name, _)| *name == kind);
        Self(self.0.iter().map(|value| Some(plugin((*value)?)?.1)).collect())
    }

    /// Whether a text may be what we wrote.
    fn may_be(&self, text: &str) -> bool {
        self.0.iter().flatten().any(|value| same(text, value))
    }

    /// Whether it is certain that there was something, and that it was this.
    fn was_surely(&self, is: impl Fn(&Value) -> bool) -> bool {
        !self.0.is_empty() && self.0.iter().all(|value| value.is_some_and(&is))
    }
}

/// Where differences are noted, and about what.
struct Told<'a> {
    path: &'a str,
    disturbed: &'a mut Vec<String>,
}

impl Told<'_> {
    /// Somebody's doing, where we had written what we still want.
    fn note(&mut self, key: &str, last: &Asked<'_>, wanted: &Value, found: Option<&str>) {
        let Self { path, disturbed } = self;
        if last.was_surely(|last| last == wanted) {
            disturbed.push(found.map_or_else(
                || format!("{path}{key} was removed"),
                |found| format!("{path}{key} was made {}", shortened(found)),
            ));
        }
    }
}

/// An object's members: the wanted as wanted, those that we no longer want gone, others' as they are.
fn members(
    disk: &Document<'_>,
    (last, wanted): (&Asked<'_>, &Map<String, Value>),
    given: Option<(&str, &str)>,
    told: &mut Told<'_>,
) -> String {
    let mut slots = Vec::with_capacity(disk.parts.len());
    for (at, part) in disk.parts.iter().enumerate() {
        let key = part.key.as_deref().unwrap_or_default();
        if disk.position(key) != Some(at) {
            // Nobody reads it: the same key comes again.
            slots.push(Slot::Keep(at));
            continue;
        }
        if let Some((_, text)) = given.filter(|(name, _)| *name == key) {
            slots.push(Slot::Change(at, text.to_owned()));
            continue;
        }
        match wanted.get(key) {
            Some(value) if same(part.value, value) => slots.push(Slot::Keep(at)),
            Some(value) => slots.push(Slot::Change(at, inner(part.value, (&last.member(key), value), (key, told)))),
            None if last.member(key).may_be(part.value) => {}
            None => slots.push(Slot::Keep(at)),
        }
    }
    for (key, value) in wanted.iter().filter(|(key, _)| disk.get(key).is_none()) {
        told.note(key, &last.member(key), value, None);
        slots.push(Slot::New { key: Some(key.clone()), value: value.clone() });
    }
    disk.with(&slots)
}

/// A value that is not as wanted: objects are merged, everything else is replaced.
fn inner(found: &str, (last, wanted): (&Asked<'_>, &Value), (key, told): (&str, &mut Told<'_>)) -> String {
    let both = wanted.as_object().zip(Document::object(found));
    if let Some((wanted, found)) = both {
        let path = format!("{}{key}.", told.path);
        let mut told = Told { path: &path, disturbed: told.disturbed };
        return members(&found, (last, wanted), None, &mut told);
    }
    told.note(key, last, wanted, Some(found));
    wanted.to_string()
}

/// The plugins on disk, and whose they are.
struct Entries<'a> {
    found: Vec<Found<'a>>,
    last: Asked<'a>,
    wanted: Vec<(&'a str, &'a Value)>,
}

struct Found<'a> {
    kind: String,
    text: &'a str,
    whose: Whose,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// Ours: it becomes what we want, or goes.
    Ours,
    /// Ours, and there before: it goes.
    Twice,
    Theirs,
}

impl<'a> Entries<'a> {
    fn of(plugins: &Document<'a>, (last, wanted): (&Asked<'a>, &'a Value), familiar: &[Entry]) -> Option<Self> {
        let known = last.is_known();
        let wanted = listed(wanted);
        let mut found: Vec<Found<'a>> = Vec::new();
        for part in &plugins.parts {
            let kind = Document::object(part.value)?.kind()?;
            // Without memory, what we might put there is taken for what we did put there.
            let written = match known {
                true => last.plugin(&kind).is_known(),
                false => familiar.iter().any(|entry| entry.kind() == kind),
            };
            let ours = written || OURS.contains(&kind.as_str());
            let again = found.iter().any(|other| other.kind == kind && other.whose == Whose::Ours);
            let whose = match (ours, again) {
                (false, _) => Whose::Theirs,
                (true, false) => Whose::Ours,
                (true, true) if OURS.contains(&kind.as_str()) => Whose::Twice,
                (true, true) => Whose::Theirs,
            };
            found.push(Found { kind, text: part.value, whose });
        }
        Some(Self { found, last: last.clone(), wanted })
    }

    fn slots(&self, disturbed: &mut Vec<String>) -> Vec<Slot> {
        let mut slots: Vec<(Option<&str>, Slot)> = Vec::new();
        for (at, entry) in self.found.iter().enumerate() {
            let value = self.wanted.iter().find(|(kind, _)| *kind == entry.kind);
            match (entry.whose, value) {
                (Whose::Theirs, _) => slots.push((None, Slot::Keep(at))),
                (Whose::Ours, Some((kind, value))) => slots.push((Some(*kind), self.slot(at, entry, value, disturbed))),
                (Whose::Ours, None) => {}
                (Whose::Twice, _) => disturbed.push(format!("plugin {} was there twice", entry.kind)),
            }
        }
        let mut before: Option<&str> = None;
        for (kind, value) in &self.wanted {
            if self.is_provided(kind) {
                continue;
            }
            if !slots.iter().any(|(name, _)| *name == Some(*kind)) {
                if self.last.plugin(kind).was_surely(|_| true) {
                    disturbed.push(format!("plugin {kind} was removed"));
                }
                // Behind the one that comes before it in our list; ours makes the interface, so it comes first of all.
                let behind = before.and_then(|before| slots.iter().position(|(name, _)| *name == Some(before)));
                let new = Slot::New { key: None, value: (*value).clone() };
                slots.insert(behind.map_or(0, |at| at + 1), (Some(*kind), new));
            }
            before = Some(*kind);
        }
        slots.into_iter().map(|(_, slot)| slot).collect()
    }

    fn slot(&self, at: usize, entry: &Found<'_>, wanted: &Value, disturbed: &mut Vec<String>) -> Slot {
        if same(entry.text, wanted) {
            return Slot::Keep(at);
        }
        let path = format!("plugin {}: ", entry.kind);
        let mut told = Told { path: &path, disturbed };
        match (Document::object(entry.text), wanted.as_object()) {
            (Some(found), Some(wanted)) => {
                let text = members(&found, (&self.last.plugin(&entry.kind), wanted), None, &mut told);
                Slot::Change(at, text)
            }
            _ => Slot::Change(at, wanted.to_string()),
        }
    }

    fn is_provided(&self, kind: &str) -> bool {
        let has = |whose| self.found.iter().any(|entry| entry.kind == kind && entry.whose == whose);
        has(Whose::Theirs) && !has(Whose::Ours)
    }

    fn provided(&self) -> Vec<String> {
        let kinds = self.wanted.iter().map(|(kind, _)| *kind);
        kinds.filter(|kind| self.is_provided(kind)).map(str::to_owned).collect()
    }

    fn foreign(&self) -> Vec<String> {
        let theirs = self.found.iter().filter(|entry| entry.whose == Whose::Theirs);
        theirs.map(|entry| entry.kind.clone()).collect()
    }
}

fn listed(document: &Value) -> Vec<(&str, &Value)> {
    let plugins = document.get(PLUGINS).and_then(Value::as_array);
    let kind = |plugin: &'_ Value| plugin.get("type").and_then(Value::as_str).is_some();
    let plugins = plugins.into_iter().flatten().filter(|plugin| kind(plugin));
    plugins.filter_map(|plugin| Some((plugin.get("type")?.as_str()?, plugin))).collect()
}

fn same(text: &str, value: &Value) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|found| found == *value)
}

fn shortened(text: &str) -> String {
    const MOST: usize = 80;
    if text.chars().count() <= MOST { text.to_owned() } else { text.chars().take(MOST).chain(['…']).collect() }
}
