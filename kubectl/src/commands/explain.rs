//! `explain`: what a word means and what to do, without a cluster.

use command::page::Page;
use serde::Serialize;

use crate::answer::{Answer, Exit, Style};
use crate::catalog::{self, Entry};

/// The meanings of a word, or all words.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Explanation {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub word: Option<String>,
    /// What it means; several things can have one name.
    pub entries: Vec<Entry>,
    /// Words that may have been meant.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub suggestions: Vec<String>,
}

pub(crate) fn run(word: &str) -> Explanation {
    let all = catalog::entries();
    if word.is_empty() {
        return Explanation { word: None, entries: all, suggestions: Vec::new() };
    }
    let mut entries = catalog::find(&all, word);
    if entries.is_empty() {
        entries.extend(catalog::unlisted_code(word));
    }
    let suggestions = if entries.is_empty() { catalog::near(&all, word) } else { Vec::new() };
    Explanation { word: Some(word.to_owned()), entries, suggestions }
}

impl Answer for Explanation {
    fn exit(&self) -> Exit {
        if self.entries.is_empty() { Exit::Usage } else { Exit::Fine }
    }

    fn show(&self, page: &mut Page, _style: Style) {
        let Some(word) = &self.word else { return list(page, &self.entries) };
        if self.entries.is_empty() {
            page.line(format_args!("No code, condition, reason, signal, rule or Xid is called {word:?}."));
            page.line(match self.suggestions.as_slice() {
                [] => "`kubectl oke-node explain` lists all words.".to_owned(),
                near => format!("Similar: {}", near.join(", ")),
            });
        }
        for (number, entry) in self.entries.iter().enumerate() {
            if number > 0 {
                page.line("");
            }
            let alias = entry.alias.as_ref().map(|alias| format!(" {alias}")).unwrap_or_default();
            page.line(format_args!("{}{alias} ({})", entry.word, entry.kind));
            for part in &entry.parts {
                page.line(format_args!("  {:<9}{}", format!("{}:", part.label), part.text));
            }
        }
    }
}

fn list(page: &mut Page, entries: &[Entry]) {
    let words = |entry: &Entry| match &entry.alias {
        Some(alias) => format!("{} ({alias})", entry.word),
        None => entry.word.clone(),
    };
    page.columns(&["WORD", "KIND"], entries.iter().map(|entry| vec![words(entry), entry.kind.to_owned()]));
}
