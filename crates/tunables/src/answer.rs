//! What an agent answers about its document: which policies it has, and each item that is not as the document says.

use api::node_policy::PolicyRemoval;
use serde::{Deserialize, Serialize};
use vcn::{excerpt, printable};

use crate::document::{Baseline, DocumentMode, POLICIES_MAX, is_default};
use crate::files::FilesAnswer;
use crate::report::{ItemReport, ItemState};
use crate::revision;

/// The longest answer, as JSON.
pub const ANSWER_MAX: usize = 8 * 1024;

/// The longest texts in it, in characters.
const VALUE_MAX: usize = 128;
const MESSAGE_MAX: usize = 160;

/// What became of a document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAnswer {
    /// [`crate::document::VERSION`]; a reader accepts later ones.
    pub version: u32,
    /// The revision of the document that the agent holds; empty without any.
    pub document: String,
    /// The uid of the cluster whose document it is.
    pub cluster: String,
    /// Its policies, in the document's order.
    #[serde(deserialize_with = "api::lenient_list")]
    pub policies: Vec<AnsweredPolicy>,
    /// Items that are not as the document says, the worst first.
    #[serde(deserialize_with = "api::lenient_list", skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<ItemReport>,
    /// How many items are as the document says.
    pub in_sync: u32,
    /// How many items did not fit.
    pub left_out: u32,
    /// The baseline of the document that the agent has.
    pub baseline: Baseline,
    /// What became of files; absent if there are none, and from agents that know none.
    #[serde(deserialize_with = "api::lenient", skip_serializing_if = "Option::is_none")]
    pub files: Option<FilesAnswer>,
}

/// A policy on the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AnsweredPolicy {
    /// The name of the policy.
    pub name: String,
    /// The uid of the policy.
    pub uid: String,
    /// The revision of the policy's settings.
    pub revision: String,
    /// What the agent does with it.
    pub mode: DocumentMode,
    /// How far it is.
    #[serde(deserialize_with = "api::lenient")]
    pub state: PolicyState,
    /// As in the document: what becomes of its values when no object has it any more.
    #[serde(deserialize_with = "api::lenient", skip_serializing_if = "is_default")]
    pub on_delete: PolicyRemoval,
}

/// How far an agent is with a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PolicyState {
    /// Values are being set, or a change of a link waits for its confirmation.
    #[default]
    Applying,
    /// What can be set is set; with mode Report, everything was compared.
    Applied,
    /// An item of the policy could not be set.
    Failed,
    /// A change of a link was not confirmed, and undone.
    Unconfirmed,
}

vcn::words!(PolicyState: Applying, Applied, Failed, Unconfirmed);

impl NodeAnswer {
    /// Within [`ANSWER_MAX`]: long texts are cut, and the last items are left out.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        self.policies.truncate(POLICIES_MAX);
        self.files.iter_mut().for_each(FilesAnswer::bound);
        self.items.sort_by(|a, b| (a.state, &a.item, &a.policy).cmp(&(b.state, &b.item, &b.policy)));
        for report in &mut self.items {
            for text in [&mut report.current, &mut report.desired] {
                *text = excerpt(&printable(text), VALUE_MAX).into_owned();
            }
            report.message = excerpt(&printable(&report.message), MESSAGE_MAX).into_owned();
        }
        while serde_json::to_vec(&self).map_or(0, |text| text.len()) > ANSWER_MAX && self.items.pop().is_some() {
            self.left_out += 1;
        }
        self
    }

    /// What distinguishes it from others, for the summary of the node: messages alone change nothing.
    pub fn digest(&self) -> String {
        let mut states = self.clone();
        states.items.iter_mut().for_each(|report| report.message.clear());
        revision::of(&states)
    }

    /// A policy, by its uid.
    pub fn policy(&self, uid: &str) -> Option<&AnsweredPolicy> {
        self.policies.iter().find(|policy| policy.uid == uid)
    }

    /// The items of a policy.
    pub fn items_of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a ItemReport> {
        self.items.iter().filter(move |report| report.policy == name)
    }
}

impl ItemState {
    /// The reason of the same name.
    pub fn reason(self) -> Option<api::PolicyReason> {
        api::PolicyReason::from_word(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(number: usize, state: ItemState) -> ItemReport {
        ItemReport {
            item: format!("net.core.key_{number}"),
            policy: "web".to_owned(),
            state,
            current: "1\u{200b}".repeat(200),
            desired: "2".repeat(500),
            message: "\u{1b}".repeat(500),
        }
    }

    #[test]
    fn answer_fits_with_the_worst_items() {
        let mut items: Vec<ItemReport> = (0..200).map(|number| report(number, ItemState::Drifted)).collect();
        items.push(report(200, ItemState::Failed));
        let answer = NodeAnswer { items, ..NodeAnswer::default() }.bounded();
        let length = serde_json::to_vec(&answer).unwrap().len();
        assert!(length <= ANSWER_MAX && length > ANSWER_MAX / 2, "{length}");
        assert_eq!(answer.items[0].state, ItemState::Failed);
        assert_eq!(answer.left_out as usize + answer.items.len(), 201);
    }

    #[test]
    fn message_alone_does_not_change_the_digest() {
        let of = |message: &str, current: &str| {
            let item = ItemReport {
                message: message.to_owned(),
                current: current.to_owned(),
                ..report(1, ItemState::Drifted)
            };
            NodeAnswer { items: vec![item], ..NodeAnswer::default() }.digest()
        };
        assert_eq!(of("a", "1"), of("b", "1"));
        assert_ne!(of("a", "1"), of("a", "2"));
    }

    #[test]
    fn answer_of_a_later_version_is_read() {
        let text = r#"{"version": 2, "document": "a", "later": {}, "policies": [{"name": "web", "state": "asleep"}, 7],
            "items": [{"item": "x", "policy": "web", "state": "Tired"}, {"item": "y", "policy": "web", "state": "Failed"}]}"#;
        let answer: NodeAnswer = serde_json::from_str(text).unwrap();
        assert_eq!((answer.policies.len(), answer.policies[0].state), (1, PolicyState::Applying));
        assert_eq!(answer.items.iter().map(|item| item.item.as_str()).collect::<Vec<_>>(), ["y"]);
    }

    #[test]
    fn every_state_of_an_item_is_a_reason() {
        for state in ItemState::ALL {
            assert_eq!(state.reason().map(api::Reason::as_str), Some(state.as_str()));
        }
    }
}
