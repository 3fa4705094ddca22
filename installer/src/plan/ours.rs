//! Our own configuration: what it is to say, merged with what others have put into it.

use serde_json::Value;

use super::chain::{self, Disk};
use super::{Facts, Note, Plan, Purpose, Step, Writing};
use crate::entry::MAIN;
use crate::merge::{Asked, Merge};
use crate::observed::{At, ConfText};
use crate::record::{Configuration, WINDOW};
use crate::versions::Answer;
use crate::{Conflist, Contents, Entry, Error, conflist};

impl Plan {
    pub(super) fn ours(&mut self, facts: Facts<'_>, usable: bool) {
        let Facts { settings, observed, record, .. } = facts;
        let present = observed.conflist.file();
        self.conflist = match present {
            // Never removed: the pods of before a restart of the agent, and their DEL, depend on it.
            Some(found) if !usable || has_main(found) => Conflist::InPlace,
            None if !usable => Conflist::Waiting,
            _ => Conflist::Pending,
        };
        if !usable {
            return;
        }
        if let At::Unread(reason) = &observed.conflist {
            let (path, reason) = (settings.conflist(), reason.clone());
            return self.failures.push(Error::Unusable { path, reason });
        }
        if !facts.remembers && present.is_some_and(has_main) {
            // What is in it of ours could not be told from what others added, and would be theirs for ever.
            return;
        }
        let awaited = observed.chain.iter().filter(|binary| binary.answer == Answer::Awaited);
        let awaited: Vec<String> = awaited.map(|binary| binary.name.clone()).collect();
        if !awaited.is_empty() {
            // What would be written now would be written again in two seconds, and pods that start between would lack a plugin.
            return self.notes.push(Note::Awaited { plugins: awaited });
        }
        let disk = present.map(|found| Disk::of(&found.contents)).unwrap_or_default();
        let entries = settings.entries();
        let wanted = chain::wanted(&entries, &observed.chain, &disk, &mut self.notes);
        let wanted = match wanted {
            Ok(wanted) => wanted,
            // Where its binary could not be looked at, that is said already.
            Err(_) if !observed.failures.is_empty() => return,
            Err(error) => return self.failures.push(error),
        };
        let none = Configuration::default();
        let known = record.configurations.get(vcn::CONFLIST_FILE).unwrap_or(&none);
        let (contents, mut disturbed) = self.merged(present, known, (&wanted, &entries));
        if present.is_some_and(|found| found.contents == contents.as_bytes()) {
            if known.wanted.as_ref() != Some(&wanted) || known.is_pending() {
                self.adopted = Some((contents, wanted));
            }
            return;
        }
        if disturbed.is_empty() && known.wanted.as_ref() == Some(&wanted) && !known.is_pending() {
            // It was in place, and we want nothing new, so it is somebody's doing, whatever he did.
            disturbed.push("it was changed".to_owned());
        }
        let (target, mode) = match present {
            Some(found) => (found.target.clone(), found.mode),
            None => (settings.conflist(), conflist::MODE),
        };
        let found = present.map(|found| found.contents.clone());
        let link = match &observed.conflist {
            At::Link(to) => Some(to.clone()),
            _ => None,
        };
        let (name, purpose) = (vcn::CONFLIST_FILE.to_owned(), Purpose::Ours);
        let writing = Writing { name, target, contents, mode, found, link, wanted, purpose, disturbed };
        if self.write(writing, known, facts) {
            self.conflist = Conflist::Pending;
        }
    }

    /// The text, and what somebody did to the last one.
    fn merged(
        &mut self,
        present: Option<&ConfText>,
        known: &Configuration,
        (wanted, familiar): (&Value, &[Entry]),
    ) -> (String, Vec<String>) {
        let fresh = || conflist::text(wanted);
        let blame = |what: &str| known.written.iter().map(|_| what.to_owned()).collect();
        // Not with what others had in it when we last wrote it: they may be gone since, and a plugin without its binary
        // fails every pod. Those that are there put themselves in again.
        let Some(found) = present else {
            return (fresh(), if known.is_first_pending() { Vec::new() } else { blame("it was removed") });
        };
        let is_found = |text: &str| text.as_bytes() == found.contents;
        if known.texts().any(|(text, asked)| is_found(text) && is_found(&conflist::text(asked))) {
            return (fresh(), Vec::new());
        }
        let merge = Merge { last: Asked::new(known.asked(&found.contents)), wanted, familiar };
        let Some(merged) = found.text().and_then(|text| merge.into_text(text)) else {
            return (fresh(), blame("it was made what is no list of plugins"));
        };
        if !merged.provided.is_empty() {
            self.notes.push(Note::Provided { plugins: merged.provided.clone() });
        }
        let more: Vec<String> = merged.foreign.into_iter().filter(|kind| !merged.provided.contains(kind)).collect();
        if !more.is_empty() {
            self.notes.push(Note::Extended { plugins: more });
        }
        (merged.text, merged.disturbed)
    }

    /// Plans the writing, unless somebody undid too many before.
    pub(super) fn write(&mut self, writing: Writing, known: &Configuration, facts: Facts<'_>) -> bool {
        let ours = writing.purpose == Purpose::Ours;
        let without_it_no_network = ours && !facts.observed.conflist.file().is_some_and(has_main);
        let rest = known.fights.rests(facts.now, without_it_no_network);
        if let Some(rest) = rest.filter(|_| !writing.disturbed.is_empty()) {
            self.failures.push(Error::Contention {
                path: writing.target,
                times: known.fights.recent(facts.now).len(),
                within: WINDOW,
                difference: writing.disturbed.join("; "),
                rest,
            });
            return false;
        }
        self.steps.push(Step::WriteConflist(Box::new(writing)));
        true
    }
}

fn has_main(found: &ConfText) -> bool {
    matches!(Contents::parse(&found.contents), Contents::Plugins(kinds) if kinds.iter().any(|kind| kind == MAIN))
}
