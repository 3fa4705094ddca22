//! Which value of several policies a node gets: item by item the higher priority, of equal ones the older object. Pure.
//!
//! What is reported never displaces what is applied: the two are merged apart, so that a key may have one value of each.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use api::NodeSettings;
use api::node_policy::{HostUnit, PolicyRemoval};
use serde::Serialize;

use crate::document::{
    Baseline, DOCUMENT_MAX, DesiredHostFile, DesiredHugePages, DesiredLink, DesiredReservations, DesiredSysctl,
    DocumentMode, DocumentPolicy, LeaderTerm, NodeDocument, VERSION, WITHOUT_FILES_MAX,
};
use crate::files::{self, reservations};
use crate::item::{self, Item};
use crate::keys;
use crate::refusal::Refusal;
use crate::revision;
use crate::value::is_same;

/// Room in a document for what is not of policies: the cluster, the instance and the baseline.
const ENVELOPE: usize = 2048;

/// A policy that a node gets.
#[derive(Clone, Copy, Debug)]
pub struct PolicyOfNode<'a> {
    /// The name of the policy.
    pub name: &'a str,
    /// The uid of the policy.
    pub uid: &'a str,
    /// When it was created, in seconds since 1970.
    pub created: i64,
    /// Which of its revisions.
    pub revision: &'a str,
    /// The priority of that revision.
    pub priority: u16,
    /// What the agent does with it.
    pub mode: DocumentMode,
    /// What the agent does when a later document does not name it.
    pub on_delete: PolicyRemoval,
    /// The settings of that revision; none with [`DocumentMode::Keep`].
    pub settings: Option<&'a NodeSettings>,
}

/// What a node gets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeItems {
    /// Its policies, the highest precedence first.
    pub policies: Vec<DocumentPolicy>,
    /// Kernel settings, by key.
    pub sysctls: Vec<DesiredSysctl>,
    /// The settings of transparent huge pages.
    pub huge_pages: Vec<DesiredHugePages>,
    /// Options of links, the highest precedence first.
    pub links: Vec<DesiredLink>,
    /// Files of the host, by path.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<DesiredHostFile>,
    /// Units that a policy of mode Apply lets restart: with files of each policy.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub restart: BTreeSet<HostUnit>,
    /// Reservations of the kubelet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kubelet: Vec<DesiredReservations>,
    /// Items of policies that another one displaces without a higher priority.
    pub conflicts: Vec<Conflict>,
    /// Names of policies for which a document has no room.
    pub left_out: Vec<String>,
}

/// An item with two values of the same priority.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Conflict {
    /// The younger policy, whose value does not apply.
    pub policy: String,
    /// The name of the older policy.
    pub rival: String,
    /// The item that both set.
    pub item: String,
}

/// The values of an item, by whether they are applied or reported.
type Values = BTreeMap<(Item, DocumentMode), (usize, String)>;

impl NodeItems {
    /// The document of a node in a cluster. Nothing is permitted yet.
    pub fn document(&self, cluster: &str, instance: Option<&str>, baseline: Baseline) -> NodeDocument {
        let document = NodeDocument {
            version: VERSION,
            revision: String::new(),
            cluster: cluster.to_owned(),
            instance: instance.map(str::to_owned),
            policies: self.policies.clone(),
            sysctls: self.sysctls.clone(),
            huge_pages: self.huge_pages.clone(),
            links: self.links.clone(),
            files: self.files.clone(),
            restart: self.restart.clone(),
            kubelet: self.kubelet.clone(),
            grants: BTreeSet::new(),
            baseline,
            term: LeaderTerm::default(),
        };
        document.named(|_| ())
    }
}

/// Merges the policies of a node. Settings that no node may have are left out: [`refusals`] names them.
pub fn merge(policies: &[PolicyOfNode<'_>]) -> NodeItems {
    let mut sorted: Vec<&PolicyOfNode<'_>> = policies.iter().collect();
    sorted.sort_by_key(|policy| (Reverse(policy.priority), policy.created, policy.name));
    let mut left_out = Vec::new();
    loop {
        let mut items = merge_sorted(&sorted);
        let document = items.document("", None, Baseline::default());
        let fits = |document: &NodeDocument, most: usize| {
            serde_json::to_vec(document).is_ok_and(|text| text.len() + ENVELOPE <= most)
        };
        if fits(&document, DOCUMENT_MAX) && fits(&document.without_files(), WITHOUT_FILES_MAX) {
            items.left_out = left_out;
            return items;
        }
        match sorted.pop() {
            Some(last) => left_out.push(last.name.to_owned()),
            None => return NodeItems { left_out, ..NodeItems::default() },
        }
    }
}

const NO_RESTART: Refusal = Refusal {
    reason: "settings.restart lacks the unit that reads it, so nothing would prove that the node works with it before its next boot",
    next_step: "Add the unit to settings.restart: docs/node-policies.md lists the unit of each folder.",
};

/// The settings of a policy that no node may have in this mode, with the reason and the next step.
pub fn refusals(settings: &NodeSettings, mode: DocumentMode) -> Vec<(&str, Refusal)> {
    let needs_restart = |unit| needs_restart(settings, unit).filter(|_| mode == DocumentMode::Apply);
    let of_keys = settings.sysctls.keys().filter_map(|key| Some((key.as_str(), keys::is_never_allowed(key)?)));
    let of_files = settings.files.iter().filter_map(|file| {
        let refusal = match files::check(&file.path, &file.content, file.mode.bits()) {
            Ok(place) => place.unit.and_then(needs_restart),
            Err(refusal) => Some(refusal),
        };
        Some((file.path.as_str(), refusal?))
    });
    let kubelet = settings.kubelet.as_ref().and_then(|kubelet| {
        let refusal = reservations::check(kubelet).err().or_else(|| needs_restart(HostUnit::Kubelet));
        Some((item::KUBELET, refusal?))
    });
    of_keys.chain(of_files).chain(kubelet).collect()
}

/// What the node needs must be proven with its new file.
fn needs_restart(settings: &NodeSettings, unit: HostUnit) -> Option<Refusal> {
    (unit.is_guarded() && !settings.restart.contains(&unit)).then_some(NO_RESTART)
}

fn merge_sorted(sorted: &[&PolicyOfNode<'_>]) -> NodeItems {
    let mut items = NodeItems::default();
    let mut values = Values::new();
    for (index, policy) in sorted.iter().enumerate() {
        items.policies.push(DocumentPolicy {
            name: policy.name.to_owned(),
            uid: policy.uid.to_owned(),
            revision: policy.revision.to_owned(),
            priority: policy.priority,
            mode: policy.mode,
            on_delete: policy.on_delete,
        });
        let Some(settings) = policy.settings.filter(|_| policy.mode != DocumentMode::Keep) else { continue };
        for (item, value) in values_of(settings, policy.mode) {
            if let Some(rival) = rival(&values, sorted, &item, &value, policy) {
                let conflict =
                    Conflict { policy: policy.name.to_owned(), rival: rival.to_owned(), item: item.to_string() };
                items.conflicts.push(conflict);
            }
            values.entry((item, policy.mode)).or_insert((index, value));
        }
        let links = settings.links.iter().map(|link| DesiredLink { link: link.clone(), policy: index });
        items.links.extend(links);
        if policy.mode == DocumentMode::Apply {
            items.restart.extend(&settings.restart);
        }
    }
    for ((item, _), (policy, value)) in values {
        let settings = sorted.get(policy).and_then(|policy| policy.settings);
        match item {
            Item::Sysctl(key) => items.sysctls.push(DesiredSysctl { key, value, policy }),
            Item::HugePages => {
                let enabled = api::node_policy::HugePageMode::from_word(&value);
                items.huge_pages.extend(enabled.map(|enabled| DesiredHugePages { enabled, policy }));
            }
            Item::File(path) => {
                let file = settings.and_then(|settings| settings.files.iter().find(|file| file.path == path));
                items.files.extend(file.map(|file| DesiredHostFile {
                    path,
                    content: file.content.clone(),
                    mode: file.mode.bits(),
                    policy,
                }));
            }
            Item::Kubelet => {
                let reservations = settings.and_then(|settings| settings.kubelet.clone());
                items.kubelet.extend(reservations.map(|reservations| DesiredReservations { reservations, policy }));
            }
            Item::Link { .. } | Item::Unit(_) => {}
        }
    }
    items.conflicts.sort();
    items.conflicts.dedup();
    items
}

/// The items of a policy but for links, with what distinguishes their values: a hash for those that are longer than a word.
fn values_of(settings: &NodeSettings, mode: DocumentMode) -> Vec<(Item, String)> {
    let refused: BTreeSet<&str> = refusals(settings, mode).into_iter().map(|(item, _)| item).collect();
    let sysctls = settings.sysctls.iter().map(|(key, value)| (Item::Sysctl(key.clone()), value.clone()));
    let huge_pages = settings.transparent_huge_pages.map(|pages| (Item::HugePages, pages.enabled.to_string()));
    let files = settings.files.iter().map(|file| (Item::File(file.path.clone()), revision::of(file)));
    let kubelet = settings.kubelet.iter().map(|kubelet| (Item::Kubelet, revision::of(kubelet)));
    let all = sysctls.chain(huge_pages).chain(files).chain(kubelet);
    all.filter(|(item, _)| !refused.contains(item.to_string().as_str())).collect()
}

/// The policy of the same priority that has another value for an item. What is applied comes before what is reported.
fn rival<'a>(
    values: &Values,
    sorted: &[&PolicyOfNode<'a>],
    item: &Item,
    value: &str,
    policy: &PolicyOfNode<'_>,
) -> Option<&'a str> {
    [DocumentMode::Apply, DocumentMode::Report].into_iter().find_map(|mode| {
        let (index, other) = values.get(&(item.clone(), mode))?;
        let rival = sorted.get(*index)?;
        // A report next to another value changes nothing.
        let counts = mode == DocumentMode::Apply || policy.mode == DocumentMode::Report;
        (counts && rival.priority == policy.priority && !is_same(other, value)).then_some(rival.name)
    })
}
