//! What NodePolicies set on a node, as its agent reports: each setting of its document with its policy and state.

use command::page::Page;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tunables::files::FileState;
use tunables::item::{HUGE_PAGES, KUBELET};
use tunables::links::{describe, options};
use tunables::{AnsweredPolicy, DocumentMode, FilesState, ItemReport, NodeAnswer, NodeDocument, PolicyState};

use crate::answer::Style;
use crate::table::{cut, or_dash};

/// The most characters of a value, and of a message.
const VALUE: usize = 40;
const MESSAGE: usize = 80;

/// The agent's document, and what became of it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PolicyDetails {
    document: NodeDocument,
    answer: NodeAnswer,
}

/// A setting of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeSetting {
    pub policy: String,
    /// The setting; a link is written as its selector, unless the agent reports about it.
    pub item: String,
    pub value: String,
    /// In sync, a reason why not, or that it is not known.
    pub state: String,
    /// The value that the kernel has, if it differs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub current: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl PolicyDetails {
    /// Of an agent's details; none of an agent without policies, or of another version's.
    pub(super) fn of(value: Option<&Value>) -> Option<Self> {
        let value = value?.get("policy").filter(|policy| !policy.is_null())?;
        Self::deserialize(value).ok()
    }

    /// The settings by policy, in the order of precedence.
    pub(super) fn settings(&self) -> Vec<NodeSetting> {
        let mut settings = Vec::new();
        for (index, policy) in self.document.policies.iter().enumerate() {
            // An answer about another document says nothing about these settings.
            let is_current = self.answer.document == self.document.revision;
            let answered = self.answer.policy(&policy.uid).filter(|_| is_current);
            let mut reports: Vec<&ItemReport> = self.answer.items_of(&policy.name).collect();
            let mut setting = |item: String, value: String, kind: SettingKind| {
                let at = reports.iter().position(|report| report.item == item);
                let found = match at.map(|at| reports.remove(at)) {
                    Some(report) => of_report(report),
                    None => NodeSetting {
                        policy: policy.name.clone(),
                        item,
                        value,
                        state: self.state(policy.mode, answered, kind).to_owned(),
                        current: String::new(),
                        message: String::new(),
                    },
                };
                settings.push(found);
            };
            let sysctls = self.document.sysctls.iter().filter(|it| it.policy == index);
            sysctls.for_each(|it| setting(it.key.clone(), it.value.clone(), SettingKind::Value));
            let huge_pages = self.document.huge_pages.iter().filter(|it| it.policy == index);
            huge_pages
                .for_each(|it| setting(HUGE_PAGES.to_owned(), it.enabled.as_str().to_owned(), SettingKind::Value));
            for it in self.document.links.iter().filter(|it| it.policy == index) {
                let of = describe(&it.link.select);
                options(&it.link)
                    .into_iter()
                    .for_each(|(option, value)| setting(format!("link/{of}/{option}"), value, SettingKind::Link));
            }
            for it in self.document.files.iter().filter(|it| it.policy == index) {
                let value = FileState::of(it.content.as_bytes(), it.mode).to_string();
                setting(it.path.clone(), value, SettingKind::File);
            }
            for it in self.document.kubelet.iter().filter(|it| it.policy == index) {
                let value = serde_json::to_string(&it.reservations).unwrap_or_default();
                setting(KUBELET.to_owned(), value, SettingKind::File);
            }
            settings.extend(reports.into_iter().map(of_report));
        }
        settings
    }

    /// Of a setting about which the agent reports nothing.
    fn state(&self, mode: DocumentMode, answered: Option<&AnsweredPolicy>, kind: SettingKind) -> &'static str {
        let files = self.answer.files.as_ref().filter(|_| kind == SettingKind::File).map(|files| files.state);
        match (mode, answered.map(|policy| policy.state), files) {
            (DocumentMode::Keep, ..) => "kept",
            (_, Some(PolicyState::Applying), Some(FilesState::Due)) => "waits for its Pod",
            (_, Some(PolicyState::Applying), Some(FilesState::Changing)) => "being written",
            (_, Some(PolicyState::Applying), Some(FilesState::Confirmable)) => "waits for the controller",
            (_, None | Some(PolicyState::Applying), _) => "not reported yet",
            // A rollback takes all files of the change back.
            (_, _, Some(FilesState::RolledBack)) => "not applied",
            // Of the links that it selects, those that differ have rows of their own.
            _ if kind == SettingKind::Link => "in sync, unless listed",
            _ => "in sync",
        }
    }
}

/// What a setting is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SettingKind {
    Value,
    Link,
    File,
}

fn of_report(report: &ItemReport) -> NodeSetting {
    NodeSetting {
        policy: report.policy.clone(),
        item: report.item.clone(),
        value: report.desired.clone(),
        state: report.state.as_str().to_owned(),
        current: report.current.clone(),
        message: report.message.clone(),
    }
}

pub(super) fn show(page: &mut Page, settings: &[NodeSetting], style: Style) {
    if settings.is_empty() {
        return;
    }
    page.line("");
    let row = |setting: &NodeSetting| {
        vec![
            setting.policy.clone(),
            setting.item.clone(),
            or_dash(cut(&setting.value, VALUE, style)),
            setting.state.clone(),
            or_dash(cut(&setting.current, VALUE, style)),
            cut(&setting.message, MESSAGE, style),
        ]
    };
    page.columns(&["NODEPOLICY", "SETTING", "VALUE", "STATE", "CURRENT", "MESSAGE"], settings.iter().map(row));
}
