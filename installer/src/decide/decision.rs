//! Whether this node's pod network is ours: a pure function of the setting, the signals and the CNI configurations found.
//! The strongest signal that says anything decides. A wrong "no" costs nothing and a wrong "yes" takes a working network
//! down, so every doubt means no.

#[cfg(test)]
mod tests;

use std::path::Path;

use super::signals::{FLANNEL_DAEMONSET, METADATA_KEY, NODE_LABEL, OKE_DAEMONSET};
use super::{ForeignPods, PodNetwork, Seen, Signal, Signals};
use crate::{ConfFile, Settings};

/// Whether to install, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether binaries and configuration belong on this node.
    pub install: bool,
    /// Whether a signal says for sure that another pod network is meant.
    pub another: bool,
    /// Whether OKE's own CNI may be here: its configuration, its DaemonSet or its pods, or the directory cannot be read.
    pub oke: bool,
    /// The signal that decided.
    pub decided_by: Signal,
    /// Weaker signals that say the contrary.
    pub against: Vec<Signal>,
    /// For people: one sentence without a full stop.
    pub reason: String,
}

/// What this node itself shows, in addition to the signals.
#[derive(Clone, Copy, Debug)]
pub struct NodeState<'a> {
    /// The CNI configurations in the runtime's directory.
    pub conf_files: &'a [ConfFile],
    /// Pods of other networks.
    pub pods: &'a ForeignPods,
    /// Whether our configuration is on record: one that another program removed or damaged is ours to repair.
    pub installed_before: bool,
}

/// One signal and its statement.
struct Statement {
    signal: Signal,
    says: Says,
    found: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Says {
    VcnNative,
    OtherNetwork,
    Invalid,
}

impl Decision {
    fn new(install: bool, decided_by: Signal, reason: String) -> Self {
        Self { install, another: false, oke: false, decided_by, against: Vec::new(), reason }
    }

    fn another(self, another: bool) -> Self {
        Self { another, ..self }
    }

    /// While the configuration directory cannot be read, no one can know whose pod network this is.
    pub(crate) fn unreadable(conf_dir: &Path) -> Self {
        let reason = format!("{} cannot be read, so nothing is touched", conf_dir.display());
        Self { oke: true, ..Self::new(false, Signal::Nothing, reason) }
    }
}

/// Decides. In order: the setting; the node label; the instance metadata; the NativePodNetwork; the DaemonSets; the CNI
/// configurations, which may be stale and so never speak for installing.
///
/// - A signal weaker than the instance metadata decides for installing only if none speaks of Flannel.
/// - If OKE's own CNI is here, nothing is installed unless takeover is set: both would hand out the same addresses. Its
///   DaemonSet alone, which is one object for all nodes, prevents a first installation only.
/// - In doubt (an invalid signal, weak signals that contradict each other) an existing installation is kept up.
/// - Nothing is installed while pods of another network run on the node: they may have our addresses.
/// - A node whose VNICs are kept for application resources is not taken over: pods would lose what they request.
#[must_use]
pub fn decide(settings: &Settings, signals: &Signals, node: NodeState<'_>) -> Decision {
    let oke = oke_cni(signals, node.conf_files).is_some() || matches!(node.pods, ForeignPods::Found(_));
    Decision { oke, ..by_statements(settings, signals, node) }
}

fn by_statements(settings: &Settings, signals: &Signals, node: NodeState<'_>) -> Decision {
    let NodeState { conf_files, pods, installed_before } = node;
    let statements = statements(settings, signals, conf_files);
    let Some(strongest) = statements.first() else {
        return Decision::new(
            false,
            Signal::Nothing,
            "no signal says which pod network this cluster uses; the setting (POD_NETWORK: vcn-native or none) would"
                .to_owned(),
        );
    };
    // An existing installation speaks against handing over what no signal clearly asks for. A file of OKE's is of this node.
    let stays = installed_before && !conf_files.iter().any(ConfFile::is_oke);
    let contrary: Vec<&Statement> =
        statements.iter().filter(|it| it.says != strongest.says && it.says != Says::Invalid).collect();
    let mut decision = match (strongest.says, contrary.first()) {
        (Says::Invalid, _) if stays => {
            let reason = format!("{}, which is neither true nor false, {STAYS}", strongest.found);
            Decision::new(true, strongest.signal, reason)
        }
        (Says::Invalid, _) => {
            let reason = format!("{}, which is neither true nor false, so nothing is touched", strongest.found);
            return Decision::new(false, strongest.signal, reason);
        }
        (Says::VcnNative, Some(other)) if strongest.signal >= Signal::NativePodNetwork => {
            let (this, that) = (&strongest.found, &other.found);
            match stays {
                true => Decision::new(true, strongest.signal, format!("{this}, but {that}, {STAYS}")),
                false => {
                    let reason = format!("{this}, but {that}: in doubt nothing is touched");
                    return Decision::new(false, other.signal, reason);
                }
            }
        }
        (Says::VcnNative, _) => Decision::new(true, strongest.signal, strongest.found.clone()),
        (..) => {
            let decision = Decision::new(false, strongest.signal, strongest.found.clone());
            // What speaks of Flannel may be stale, and the NativePodNetwork that would speak against it was not read.
            let asked = signals.native_pod_network == Seen::Absent;
            decision.another(strongest.signal < Signal::NativePodNetwork || asked)
        }
    };
    if decision.install {
        let oke = oke_cni(signals, conf_files);
        let ours = installed_before || conf_files.iter().any(ConfFile::is_ours);
        let kept = ours && oke.as_ref().is_some_and(|(signal, _)| stands(strongest.signal, *signal));
        // Its DaemonSet may put a pod on none of the nodes; and a setting that says ours outranks its file.
        let is_okes = |signal| signal == Signal::OkeConflist && strongest.signal != Signal::Setting;
        match &oke {
            Some((signal, found)) if !settings.takeover && !kept => {
                let reason = format!("{found}: OKE's own CNI hands out the same addresses, and takeover is not set");
                return Decision::new(false, *signal, reason).another(is_okes(*signal));
            }
            Some((signal, found)) if !settings.takeover => {
                decision.against.push(*signal);
                decision.reason = format!(
                    "{}; {found}, and OKE's own CNI hands out the same addresses, but this node's pod network is ours already \
                     and OKE's own CNI is not on this node: ours is kept up",
                    decision.reason
                );
            }
            Some((signal, _)) if !ours && signals.application_resources == Seen::Present => {
                let decision = Decision::new(false, Signal::ApplicationResources, APPLICATION_RESOURCES.to_owned());
                return decision.another(is_okes(*signal));
            }
            _ => {}
        }
        if let Some(reason) = occupied(pods, oke.is_some() && !kept) {
            return Decision::new(false, Signal::OkePods, reason);
        }
    }
    // An invalid signal has no contrary.
    let contrary = contrary.into_iter().filter(|_| strongest.says != Says::Invalid);
    decision.against.extend(contrary.map(|statement| statement.signal));
    decision
}

/// The reason for a node with such VNICs.
const APPLICATION_RESOURCES: &str = "takeover is set, but VNICs of this node's NativePodNetwork are kept for application resources: only the API server \
     knows which resource a pod requests, and a pod's start does not wait for it. OKE's own CNI continues to serve this \
     node; take over nodes of a pool without applicationResources";

/// The consequence of doubt for an existing installation.
const STAYS: &str = "but this node's pod network is ours already: in doubt ours is kept up";

/// Whether an existing installation is kept up next to a sign of OKE's own CNI. Its DaemonSet is one object for all nodes, and
/// may put a pod on none of them; a file is of this node. A DaemonSet that is itself the strongest signal does not count.
fn stands(strongest: Signal, oke: Signal) -> bool {
    oke == Signal::OkeDaemonSet && strongest != Signal::OkeDaemonSet
}

/// Why pods prevent the installation, and what to do. If OKE's own CNI is not here, there need be no proof that none of its
/// pods are left, because on most nodes it never was.
fn occupied(pods: &ForeignPods, oke: bool) -> Option<String> {
    const NEXT: &str = "drain the node, also of pods of DaemonSets, and delete files that are left from before a reboot; the \
                        next reconcile continues";
    match (pods, oke) {
        (ForeignPods::None, _) | (ForeignPods::Unknown(_), false) => None,
        (ForeignPods::Found(what), true) => Some(format!(
            "takeover is set, but pods of OKE's own CNI run on this node ({what}), and their addresses would be given to \
             other pods: {NEXT}"
        )),
        (ForeignPods::Found(what), false) => Some(format!(
            "pods of another pod network run on this node ({what}), perhaps of OKE's own CNI, and their addresses would be \
             given to other pods: {NEXT}"
        )),
        (ForeignPods::Unknown(why), true) => Some(format!(
            "takeover is set, but pods of OKE's own CNI may run on this node ({why}): mount both directories that show them \
             (manifests/overlays/oke-vcn-native/takeover.yaml)"
        )),
    }
}

/// Every signal that says anything, the strongest first.
fn statements(settings: &Settings, signals: &Signals, conf_files: &[ConfFile]) -> Vec<Statement> {
    let setting = match settings.pod_network {
        PodNetwork::Auto => None,
        PodNetwork::VcnNative => Some((Says::VcnNative, "the setting is vcn-native")),
        PodNetwork::None => Some((Says::OtherNetwork, "the setting is none")),
    };
    let setting = setting.map(|(says, found)| Statement { signal: Signal::Setting, says, found: found.to_owned() });
    let present = |seen: Seen, signal: Signal, says: Says, found: String| {
        (seen == Seen::Present).then_some(Statement { signal, says, found })
    };
    let flannel_file = conf_files.iter().find(|file| file.is_flannel());
    [
        setting,
        flag(Signal::NodeLabel, &format!("the node label {NODE_LABEL}"), signals.node_label.as_deref()),
        flag(
            Signal::InstanceMetadata,
            &format!("the instance metadata {METADATA_KEY}"),
            signals.instance_metadata.as_deref(),
        ),
        present(
            signals.native_pod_network,
            Signal::NativePodNetwork,
            Says::VcnNative,
            "the instance has a NativePodNetwork".to_owned(),
        ),
        present(
            signals.oke_daemonset,
            Signal::OkeDaemonSet,
            Says::VcnNative,
            format!("the DaemonSet {OKE_DAEMONSET} exists"),
        ),
        present(
            signals.flannel_daemonset,
            Signal::FlannelDaemonSet,
            Says::OtherNetwork,
            format!("the DaemonSet {FLANNEL_DAEMONSET} exists"),
        ),
        flannel_file.map(|file| Statement {
            signal: Signal::FlannelConflist,
            says: Says::OtherNetwork,
            found: format!("{} is a configuration of Flannel", file.name),
        }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A text that should be `true` or `false`. An empty one is invalid, too.
fn flag(signal: Signal, what: &str, value: Option<&str>) -> Option<Statement> {
    let value = value?;
    let says = match value.trim().to_ascii_lowercase().as_str() {
        "true" => Says::VcnNative,
        "false" => Says::OtherNetwork,
        _ => Says::Invalid,
    };
    Some(Statement { signal, says, found: format!("{what} is {value:?}") })
}

pub(crate) fn oke_cni(signals: &Signals, conf_files: &[ConfFile]) -> Option<(Signal, String)> {
    if let Some(file) = conf_files.iter().find(|file| file.is_oke()) {
        return Some((Signal::OkeConflist, format!("{} is present", file.name)));
    }
    (signals.oke_daemonset == Seen::Present)
        .then(|| (Signal::OkeDaemonSet, format!("the DaemonSet {OKE_DAEMONSET} exists")))
}
