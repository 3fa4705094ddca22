//! The document that the leader sends to an agent: all settings of its node. The last one holds while no controller answers.

use std::collections::BTreeSet;

use api::node_policy::{
    FileGrant, HostUnit, HugePageMode, KubeletReservations, LinkSettings, PolicyMode, PolicyRemoval,
};
use serde::{Deserialize, Serialize};

use crate::revision;

/// Where an agent takes a document, and answers with what became of it.
pub const POLICY_PATH: &str = "/v1/policy";
/// Where an agent receives the confirmation of a change of files.
pub const FILES_PATH: &str = "/v1/files";

/// The longest document, as JSON.
pub const DOCUMENT_MAX: usize = 24 * 1024;
/// The same, without files: agents of 0.3.0 refuse a longer one.
pub(crate) const WITHOUT_FILES_MAX: usize = 16 * 1024;

/// The only version so far. A reader refuses later ones: it would leave settings out that it does not know.
pub const VERSION: u32 = 1;
/// The most policies of a cluster, and so of a document and an answer.
pub const POLICIES_MAX: usize = 50;

/// All settings of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeDocument {
    /// The number of the format: [`VERSION`].
    pub version: u32,
    /// What distinguishes it from others: a hash of everything but version, baseline and term.
    pub revision: String,
    /// The uid of the cluster.
    pub cluster: String,
    /// The instance's OCID, where the Node names one. An agent on another instance refuses the document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The policies, the highest precedence first. Without any, everything is undone.
    pub policies: Vec<DocumentPolicy>,
    /// Kernel settings, by key. A key has at most one value to apply and one to report.
    pub sysctls: Vec<DesiredSysctl>,
    /// Transparent huge pages: at most one value to apply and one to report.
    pub huge_pages: Vec<DesiredHugePages>,
    /// Options of links, the highest precedence first: [`crate::links::choose`].
    pub links: Vec<DesiredLink>,
    /// Files of the host, by path: at most one to apply and one to report.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<DesiredHostFile>,
    /// Units that may restart when their files change.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub restart: BTreeSet<HostUnit>,
    /// Reservations of the kubelet: at most one to apply and one to report.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kubelet: Vec<DesiredReservations>,
    /// What the cluster's owner permits.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub grants: BTreeSet<FileGrant>,
    /// What the node had when this was sent.
    pub baseline: Baseline,
    /// Of the leader that sent it.
    #[serde(skip_serializing_if = "is_default")]
    pub term: LeaderTerm,
}

/// A time in which one replica of the controller leads. A document that a former leader sent late replaces no later one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LeaderTerm {
    /// The uid of the Lease: another one counts from the start.
    pub lease: String,
    /// How often the Lease had another holder.
    pub number: u32,
}

/// A policy of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DocumentPolicy {
    /// The name of the policy.
    pub name: String,
    /// Its uid: another object of the same name is another policy.
    pub uid: String,
    /// Which of its revisions; empty with [`DocumentMode::Keep`].
    pub revision: String,
    /// The priority of the policy: the higher one wins.
    pub priority: u16,
    /// What the agent does with it.
    pub mode: DocumentMode,
    /// What the agent does when a later document does not name it.
    #[serde(skip_serializing_if = "is_default")]
    pub on_delete: PolicyRemoval,
}

/// What an agent does with a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DocumentMode {
    /// Compare the settings, and change nothing.
    #[default]
    Report,
    /// Set the settings that differ.
    Apply,
    /// Forget what the policy set, and leave the values.
    Keep,
}

/// The desired value of a kernel setting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DesiredSysctl {
    /// The key, with periods.
    pub key: String,
    /// The value that it must have.
    pub value: String,
    /// The index of the policy.
    pub policy: usize,
}

/// The desired setting of transparent huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DesiredHugePages {
    /// The memory that gets huge pages.
    pub enabled: HugePageMode,
    /// The index of the policy.
    pub policy: usize,
}

/// Options of the links that a policy selects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DesiredLink {
    /// The selector and the options.
    pub link: LinkSettings,
    /// The index of the policy.
    pub policy: usize,
}

/// A file of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DesiredHostFile {
    /// The path on the host.
    pub path: String,
    /// The content of the file.
    pub content: String,
    /// The permission bits of the file.
    pub mode: u32,
    /// The index of the policy.
    pub policy: usize,
}

/// Reservations of the kubelet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DesiredReservations {
    /// The resources that the kubelet reserves.
    pub reservations: KubeletReservations,
    /// The index of the policy.
    pub policy: usize,
}

/// What a node had when a document was sent. The agent keeps it, so that another leader judges by it, too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Baseline {
    /// Whether its kubelet was ready.
    pub ready: bool,
    /// Its critical problems, at most [`PROBLEMS_MAX`].
    pub problems: Vec<String>,
}

/// The most problems of a baseline.
pub const PROBLEMS_MAX: usize = 16;

vcn::words!(DocumentMode: Report, Apply, Keep);

impl NodeDocument {
    /// The same, with what the cluster's owner permits.
    #[must_use]
    pub fn permit(self, grants: &[FileGrant]) -> Self {
        self.named(|document| document.grants = grants.iter().copied().collect())
    }

    /// The same for an agent that does not know files.
    #[must_use]
    pub fn without_files(self) -> Self {
        self.named(|document| {
            document.files.clear();
            document.restart.clear();
            document.kubelet.clear();
            document.grants.clear();
        })
    }

    /// The same after a change, with its revision.
    pub(crate) fn named(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self.revision = self.hash();
        self
    }

    /// Of everything but version, revision, baseline and term.
    fn hash(&self) -> String {
        let Self { cluster, instance, policies, sysctls, huge_pages, links, .. } = self;
        let Self { files, restart, kubelet, grants, .. } = self;
        let others = (cluster, instance, policies, sysctls, huge_pages, links);
        // Without files the name is that of earlier versions: an upgrade sends nothing.
        match files.is_empty() && restart.is_empty() && kubelet.is_empty() && grants.is_empty() {
            true => revision::of(&others),
            false => revision::of(&(others, files, restart, kubelet, grants)),
        }
    }

    /// The policy of an entry, if the index is valid.
    pub fn policy(&self, index: usize) -> Option<&DocumentPolicy> {
        self.policies.get(index)
    }
}

/// For fields that are left out.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl From<PolicyMode> for DocumentMode {
    fn from(mode: PolicyMode) -> Self {
        match mode {
            PolicyMode::Report => Self::Report,
            PolicyMode::Apply => Self::Apply,
        }
    }
}

impl LeaderTerm {
    /// Whether it ended before another one began.
    pub fn is_before(&self, other: &Self) -> bool {
        self.lease == other.lease && self.number < other.number
    }
}

impl Baseline {
    /// Of these problems, the first.
    pub fn new(ready: bool, problems: impl Iterator<Item = String>) -> Self {
        let mut problems: Vec<String> = problems.collect();
        problems.sort();
        problems.dedup();
        problems.truncate(PROBLEMS_MAX);
        Self { ready, problems }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> NodeDocument {
        let policy = DocumentPolicy {
            name: "web".to_owned(),
            uid: "u".to_owned(),
            revision: "r".to_owned(),
            priority: 100,
            mode: DocumentMode::Apply,
            on_delete: PolicyRemoval::Restore,
        };
        let sysctl = DesiredSysctl { key: "vm.swappiness".to_owned(), value: "10".to_owned(), policy: 0 };
        let (version, cluster) = (VERSION, "c".to_owned());
        let document = NodeDocument { version, cluster, ..NodeDocument::default() };
        document.named(|document| (document.policies, document.sysctls) = (vec![policy], vec![sysctl]))
    }

    #[test]
    fn document_without_files_has_the_revision_of_earlier_releases() {
        let without = document();
        assert_eq!(without.revision, "fc42c7ed26aa2892", "or an upgrade sends each node its document again");
        assert_eq!(without.clone().permit(&[]), without);
        let mut with = without.clone();
        let (path, content) = ("/etc/sysctl.d/90-web.conf".to_owned(), "vm.swappiness = 10\n".to_owned());
        with.files.push(DesiredHostFile { path, content, mode: 0o644, policy: 0 });
        let with = with.permit(&[FileGrant::HostFiles]);
        let not_permitted = with.clone().permit(&[]);
        assert!(with.revision != without.revision && not_permitted.revision != with.revision);
        assert_eq!(with.without_files(), without);
        let text = serde_json::to_string(&without).unwrap();
        assert!(["files", "restart", "kubelet", "grants"].iter().all(|field| !text.contains(field)), "{text}");
    }
}
