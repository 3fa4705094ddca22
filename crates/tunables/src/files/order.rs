//! The order for the program that writes files on a node: all files of the node's policies. The leader passes the order's hash
//! separately, so that no program on the way can change the order.

use std::collections::BTreeSet;

use api::node_policy::{FileGrant, HostUnit, KUBELET_FOLDER, KubeletReservations, SYSTEMD_FOLDER};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::document::{DesiredHostFile, DesiredReservations, DocumentMode, NodeDocument, is_default};
use crate::files::folders::OWN_NAME;
use crate::files::plan::{DesiredFile, DesiredFiles, FileReport};
use crate::files::record::RecordedReservations;
use crate::files::reservations::{self, folder_of, unit_drop_in};
use crate::item::KUBELET;
use crate::refusal::Refusal;
use crate::report::ItemState;

/// The version of orders. A reader refuses later ones.
pub const VERSION: u32 = 1;
/// The longest order, as JSON.
pub const ORDER_MAX: usize = 64 * 1024;
/// The most files of an order.
const FILES_MAX: usize = 64;
/// The mode of files that reservations become.
const MODE: u32 = 0o644;

/// All files of a node's policies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileOrder {
    /// The number of the format: [`VERSION`].
    pub version: u32,
    /// The uid of the cluster.
    pub cluster: String,
    /// The instance's OCID, if the Node names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The files that the Pod writes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<OrderedFile>,
    /// Units that may restart when their files change.
    #[serde(default, skip_serializing_if = "is_default")]
    pub restart: BTreeSet<HostUnit>,
    /// Uids of policies whose files stay as they are.
    #[serde(default, skip_serializing_if = "is_default")]
    pub kept: BTreeSet<String>,
    /// What the kubelet reserves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<OrderedReservations>,
}

/// A file that the Pod writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderedFile {
    /// Its path on the host.
    pub path: String,
    /// The content of the file.
    pub content: String,
    /// The permission bits of the file.
    pub mode: u32,
    /// The uid of its policy.
    pub policy: String,
}

/// Reservations, and their policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderedReservations {
    /// The resources that the kubelet reserves.
    pub reservations: KubeletReservations,
    /// The uid of the policy.
    pub policy: String,
}

/// The kubelet of a node, as far as reservations depend on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeletFacts {
    /// The command of its unit, as systemd reports it.
    pub start: Vec<String>,
    /// The unit's environment, whose variables the command may have.
    pub environment: Vec<String>,
    /// The arguments of its running process; empty if none runs.
    pub running: Vec<String>,
    /// The node's memory in bytes.
    pub memory: u64,
    /// The node's logical processors.
    pub processors: u64,
}

impl FileOrder {
    /// The order of a document. Leader and agent render the same one.
    pub fn of(document: &NodeDocument) -> Self {
        let applied = |index: usize| document.policy(index).filter(|policy| policy.mode == DocumentMode::Apply);
        let file = |file: &DesiredHostFile| {
            let DesiredHostFile { path, content, mode, policy } = file.clone();
            Some(OrderedFile { path, content, mode, policy: applied(policy)?.uid.clone() })
        };
        let reservations = |desired: &DesiredReservations| {
            let (reservations, policy) = (desired.reservations.clone(), applied(desired.policy)?.uid.clone());
            Some(OrderedReservations { reservations, policy })
        };
        let kept = document.policies.iter().filter(|policy| policy.mode == DocumentMode::Keep);
        Self {
            version: VERSION,
            cluster: document.cluster.clone(),
            instance: document.instance.clone(),
            files: document.files.iter().filter_map(file).collect(),
            restart: document.restart.clone(),
            kept: kept.map(|policy| policy.uid.clone()).collect(),
            kubelet: document.kubelet.iter().find_map(reservations),
        }
    }

    /// The order as it is stored, with its hash.
    pub fn to_text(&self) -> (Vec<u8>, String) {
        // No value of these types fails.
        let text = serde_json::to_vec(self).unwrap_or_default();
        let sha256 = sha256(&text);
        (text, sha256)
    }

    /// Reads an order that must have this hash.
    ///
    /// # Errors
    /// In words, if it is another one, or of a later version.
    pub fn read(text: &[u8], sha256: &str) -> Result<Self, String> {
        if text.len() > ORDER_MAX {
            return Err(format!("the order has {} bytes, more than {ORDER_MAX}", text.len()));
        }
        if self::sha256(text) != sha256 {
            return Err("the order's hash differs from the leader's".to_owned());
        }
        let order: Self = serde_json::from_slice(text).map_err(|error| format!("read the order: {error}"))?;
        match order.version {
            VERSION if order.files.len() <= FILES_MAX => Ok(order),
            VERSION => Err(format!("the order has {} files, more than {FILES_MAX}", order.files.len())),
            version => Err(format!("the order has version {version}, not {VERSION}")),
        }
    }

    /// The files that policies name.
    pub fn explicit(&self, grants: &[FileGrant]) -> DesiredFiles {
        let file = |file: &OrderedFile| {
            let OrderedFile { path, content, mode, policy } = file.clone();
            (path, DesiredFile { content, mode, policy, is_rendered: false })
        };
        DesiredFiles {
            apply: self.files.iter().map(file).collect(),
            restart: self.restart.clone(),
            kept: self.kept.clone(),
            grants: grants.to_vec(),
            ..DesiredFiles::default()
        }
    }

    /// The files for a node with this kubelet. Reservations that it cannot have hide no file: they are refused in words.
    pub fn desired(&self, grants: &[FileGrant], kubelet: &KubeletFacts) -> DesiredFiles {
        let mut desired = self.explicit(grants);
        let Some(OrderedReservations { reservations, policy }) = &self.kubelet else { return desired };
        let mut recorded = RecordedReservations::new(reservations);
        match render(reservations, kubelet) {
            Ok(rendered) => desired.apply.extend(rendered.into_iter().map(|(path, content)| {
                (path, DesiredFile { content, mode: MODE, policy: policy.clone(), is_rendered: true })
            })),
            Err((state, message)) => {
                recorded = RecordedReservations { state: Some(state), message: message.clone(), ..recorded };
                let (path, policy) = (KUBELET.to_owned(), policy.clone());
                desired.refused.push(FileReport { path, policy, state, message });
            }
        }
        desired.kubelet = Some(recorded);
        desired
    }
}

fn sha256(text: &[u8]) -> String {
    format!("{:x}", Sha256::digest(text))
}

/// The paths that reservations may become: a drop-in of the kubelet, and one of its unit.
pub(crate) fn rendered_paths() -> [String; 2] {
    let unit = format!("{SYSTEMD_FOLDER}/{unit}.d/{OWN_NAME}", unit = HostUnit::Kubelet);
    [format!("{KUBELET_FOLDER}/{OWN_NAME}"), unit]
}

/// The files that reservations become on a node, or why there are none.
fn render(
    reservations: &KubeletReservations,
    kubelet: &KubeletFacts,
) -> Result<Vec<(String, String)>, (ItemState, String)> {
    let refused = |refusal: Refusal| (ItemState::Refused, refusal.to_string());
    reservations::check(reservations).map_err(refused)?;
    reservations::check_capacity(reservations, kubelet.memory, kubelet.processors).map_err(refused)?;
    let own_unit = format!("--config-dir={KUBELET_FOLDER}");
    // Variables of the command are words of the environment. The names before = make no flag.
    let words = kubelet.environment.iter().filter_map(|variable| variable.split_once('=').map(|(_, value)| value));
    let words = words.flat_map(str::split_whitespace).map(str::to_owned);
    let command_line: Vec<String> = kubelet.start.iter().cloned().chain(words).collect();
    let running = || reservations::outranked_by(reservations, &kubelet.running);
    if let Some(flag) = reservations::outranked_by(reservations, &command_line).or_else(running) {
        let message =
            format!("the kubelet's flag --{flag} sets the same and outranks files. Remove it from the node pool.");
        return Err((ItemState::Unsupported, message));
    }
    let [drop_in_path, unit_path] = rendered_paths();
    let drop_in = (drop_in_path, reservations::drop_in(reservations));
    let is_own = kubelet.start.last() == Some(&own_unit);
    match folder_of(&command_line) {
        Some(folder) if folder.trim_end_matches('/') != KUBELET_FOLDER => {
            let message = format!("the kubelet reads drop-ins from {folder}, and policies have none there.");
            Err((ItemState::Unsupported, message))
        }
        // A flag of another program stays; our flag comes from our drop-in.
        Some(_) if !is_own => Ok(vec![drop_in]),
        _ => {
            let start =
                if is_own { kubelet.start.split_last().map_or(&[][..], |(_, rest)| rest) } else { &kubelet.start };
            let message = || "systemd does not report one command of the kubelet's unit.".to_owned();
            let unit = unit_drop_in(start).ok_or_else(|| (ItemState::Unsupported, message()))?;
            Ok(vec![drop_in, (unit_path, unit)])
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn kubelet(start: &str, environment: &[&str]) -> KubeletFacts {
        KubeletFacts {
            start: start.split(' ').map(str::to_owned).collect(),
            environment: environment.iter().map(|variable| (*variable).to_owned()).collect(),
            running: Vec::new(),
            memory: 8 << 30,
            processors: 4,
        }
    }

    fn order() -> FileOrder {
        let reservations: KubeletReservations =
            serde_json::from_str(r#"{"systemReserved": {"cpu": "500m", "memory": "1Gi"}}"#).unwrap();
        FileOrder {
            version: VERSION,
            cluster: "c".to_owned(),
            kubelet: Some(OrderedReservations { reservations, policy: "web".to_owned() }),
            ..FileOrder::default()
        }
    }

    fn paths(kubelet: &KubeletFacts) -> Result<Vec<String>, String> {
        let desired = order().desired(&[FileGrant::HostCode], kubelet);
        match desired.refused.first() {
            Some(report) => Err(report.message.clone()),
            None => Ok(desired.apply.into_keys().collect()),
        }
    }

    #[test]
    fn reservations_that_a_node_cannot_have_hide_no_file() {
        let (path, content) = ("/etc/sysctl.d/90-web.conf".to_owned(), "vm.swappiness = 10\n".to_owned());
        let file = OrderedFile { path, content, mode: 0o644, policy: "web".to_owned() };
        let order = FileOrder { files: vec![file], ..order() };
        let desired = order.desired(&[], &kubelet("/usr/bin/kubelet --system-reserved=cpu=1", &[]));
        assert_eq!(desired.apply.len(), 1);
        let FileReport { path, state, message, .. } = &desired.refused[0];
        assert_eq!((path.as_str(), *state), (KUBELET, ItemState::Unsupported));
        assert!(message.contains("--system-reserved"), "{message}");
        assert_eq!(desired.kubelet.unwrap().state, Some(ItemState::Unsupported), "and the agent answers it");
    }

    const DROP_IN: &str = "/etc/kubernetes/kubelet.conf.d/90-oke-node-manager.conf";
    const UNIT: &str = "/etc/systemd/system/kubelet.service.d/90-oke-node-manager.conf";

    #[test]
    fn kubelet_without_folder_gets_one_and_keeps_its_own() {
        let bare = kubelet("/usr/bin/kubelet --config=/x $KUBELET_EXTRA_ARGS", &["KUBELET_EXTRA_ARGS=--v=2"]);
        assert_eq!(paths(&bare).unwrap(), [DROP_IN, UNIT]);
        let first = order().desired(&[], &bare);
        // The same again, now that the unit has our drop-in: nothing changes.
        let changed = kubelet(
            "/usr/bin/kubelet --config=/x $KUBELET_EXTRA_ARGS --config-dir=/etc/kubernetes/kubelet.conf.d",
            &["KUBELET_EXTRA_ARGS=--v=2"],
        );
        assert_eq!(order().desired(&[], &changed), first);
        let has = kubelet("/usr/bin/kubelet --config-dir=/etc/kubernetes/kubelet.conf.d --v=2", &[]);
        assert_eq!(paths(&has).unwrap(), [DROP_IN]);
        let other = kubelet("/usr/bin/kubelet --config-dir=/etc/other.d", &[]);
        assert!(paths(&other).unwrap_err().contains("/etc/other.d"));
    }

    #[test]
    fn flag_in_the_environment_is_named() {
        let extra = ["A=b", "KUBELET_EXTRA_ARGS=--node-labels=a=b --system-reserved=cpu=100m"];
        let error = paths(&kubelet("/usr/bin/kubelet $KUBELET_EXTRA_ARGS", &extra)).unwrap_err();
        assert!(error.contains("--system-reserved"), "{error}");
        assert!(paths(&kubelet("/usr/bin/kubelet", &["X=--kube-reserved=cpu=1"])).is_ok());
        // From a file of the environment, or a script.
        let running = vec!["--system_reserved=cpu=100m".to_owned()];
        let error = paths(&KubeletFacts { running, ..kubelet("/usr/bin/kubelet $KUBELET_ARGS", &[]) }).unwrap_err();
        assert!(error.contains("--system_reserved"), "{error}");
    }

    #[test]
    fn rendered_files_are_planned_and_policies_cannot_name_them() {
        let desired = order().desired(&[FileGrant::HostCode], &kubelet("/usr/bin/kubelet", &[]));
        let observed = |path: &String| (path.clone(), crate::files::ObservedFile::Absent);
        let observed: BTreeMap<_, _> = desired.apply.keys().map(observed).collect();
        let plan = crate::files::plan(&desired, &crate::files::FileRecord::default(), &observed);
        assert!(plan.steps.len() == 2 && plan.reload && plan.reports.is_empty(), "{plan:?}");
        assert!(crate::files::place(UNIT).is_err() && crate::files::place(DROP_IN).is_err());
    }

    #[test]
    fn order_of_another_hash_or_version_is_refused() {
        let text = serde_json::to_vec(&order()).unwrap();
        let hash = format!("{:x}", Sha256::digest(&text));
        assert_eq!(FileOrder::read(&text, &hash), Ok(order()));
        assert!(FileOrder::read(&text, &hash.replace(char::is_numeric, "0")).is_err());
        for other in [&b"{}"[..], br#"{"version": 2, "cluster": "c"}"#, br#"{"version": 1, "cluster": "c", "x": 1}"#] {
            assert!(FileOrder::read(other, &format!("{:x}", Sha256::digest(other))).is_err());
        }
    }
}
