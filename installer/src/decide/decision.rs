//! Whether our pod network owns this node: a pure function of the setting, the signals and the CNI configurations found.
//! The strongest signal that says anything decides. A wrong "no" costs nothing and a wrong "yes" takes a working network
//! down, so every doubt means no.

#[cfg(test)]
mod tests;

use std::path::Path;

use super::ForeignPods;
use crate::observed::ConfFile;
use crate::settings::Settings;
use crate::signals::{METADATA_KEY, NODE_LABEL, OKE_DAEMONSET, PodNetwork, Presence, Signal, Signals};

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
pub(crate) struct NodeState<'a> {
    pub(crate) conf_files: &'a [ConfFile],
    pub(crate) pods: &'a ForeignPods,
    /// Whether our configuration is on record: the installer repairs it if another program removed or damaged it.
    pub(crate) installed_before: bool,
}

/// A signal, what it says, and the sentence for people.
type Statement = (Signal, StatementMeaning, String);

#[derive(Clone, Copy, PartialEq, Eq)]
enum StatementMeaning {
    VcnNative,
    OtherNetwork,
    Invalid,
}

impl Decision {
    fn new(install: bool, decided_by: Signal, reason: String) -> Self {
        Self { install, another: false, oke: false, decided_by, against: Vec::new(), reason }
    }

    /// While the configuration directory cannot be read, it cannot be known which pod network this is.
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
pub(crate) fn decide(settings: &Settings, signals: &Signals, node: NodeState<'_>) -> Decision {
    let oke = oke_cni(signals, node.conf_files).is_some() || matches!(node.pods, Ok(Some(_)));
    let decision = by_strongest(settings, signals, node);
    let decision = if decision.install { by_occupation(decision, settings, signals, node) } else { decision };
    Decision { oke, ..decision }
}

/// What the strongest signal decides.
fn by_strongest(settings: &Settings, signals: &Signals, node: NodeState<'_>) -> Decision {
    let statements = statements(settings, signals, node.conf_files);
    let Some((signal, says, found)) = statements.first() else {
        const NEXT: &str =
            "no signal says which pod network this cluster uses; the setting (POD_NETWORK: vcn-native or none) would";
        return Decision::new(false, Signal::Nothing, NEXT.to_owned());
    };
    // An existing installation speaks against handing over what no signal clearly requests. A file of OKE's is of this node.
    let stays = node.installed_before && !node.conf_files.iter().any(ConfFile::is_oke);
    let contrary = statements.iter().filter(|(_, other, _)| other != says && *other != StatementMeaning::Invalid);
    let against = || contrary.clone().map(|(signal, ..)| *signal).collect();
    match (says, contrary.clone().next()) {
        // It has no contrary.
        (StatementMeaning::Invalid, _) => {
            let what = if stays { STAYS } else { "so nothing is touched" };
            Decision::new(stays, *signal, format!("{found}, which is neither true nor false, {what}"))
        }
        (StatementMeaning::VcnNative, Some((other, _, against))) if *signal >= Signal::NativePodNetwork && !stays => {
            Decision::new(false, *other, format!("{found}, but {against}: in doubt nothing is touched"))
        }
        (StatementMeaning::VcnNative, other) => {
            let doubt = other.filter(|_| *signal >= Signal::NativePodNetwork);
            let doubt = doubt.map(|(.., against)| format!(", but {against}, {STAYS}")).unwrap_or_default();
            Decision { against: against(), ..Decision::new(true, *signal, format!("{found}{doubt}")) }
        }
        (StatementMeaning::OtherNetwork, _) => {
            // What speaks of Flannel may be stale, and the NativePodNetwork that would speak against it was not read.
            let another = *signal < Signal::NativePodNetwork || signals.native_pod_network == Presence::Absent;
            Decision { another, against: against(), ..Decision::new(false, *signal, found.clone()) }
        }
    }
}

/// The same, unless OKE's own CNI or pods of another network prevent it.
fn by_occupation(mut decision: Decision, settings: &Settings, signals: &Signals, node: NodeState<'_>) -> Decision {
    let strongest = decision.decided_by;
    let oke = oke_cni(signals, node.conf_files);
    let ours = node.installed_before || node.conf_files.iter().any(ConfFile::is_ours);
    // OKE's DaemonSet is one object for all nodes, and may put a pod on none of them; a file is of this node. A DaemonSet that
    // is itself the strongest signal does not count.
    let is_kept_up = |signal| signal == Signal::OkeDaemonSet && strongest != Signal::OkeDaemonSet;
    let kept = ours && oke.as_ref().is_some_and(|(signal, _)| is_kept_up(*signal));
    // Its DaemonSet may put a pod on none of the nodes; and the setting vcn-native outranks its file.
    let is_okes = |signal| signal == Signal::OkeConflist && strongest != Signal::Setting;
    match &oke {
        Some((signal, found)) if !settings.takeover && !kept => {
            let reason = format!("{found}: OKE's own CNI hands out the same addresses, and takeover is not set");
            return Decision { another: is_okes(*signal), ..Decision::new(false, *signal, reason) };
        }
        Some((signal, found)) if !settings.takeover => {
            decision.against.insert(0, *signal);
            decision.reason += &format!(
                "; {found}, and OKE's own CNI hands out the same addresses, but our pod network is installed on this node \
                 and OKE's own CNI is not: it is maintained"
            );
        }
        Some((signal, _)) if !ours && signals.application_resources == Presence::Present => {
            let refused = Decision::new(false, Signal::ApplicationResources, APPLICATION_RESOURCES.to_owned());
            return Decision { another: is_okes(*signal), ..refused };
        }
        _ => {}
    }
    match occupied(node.pods, oke.is_some() && !kept) {
        Some(reason) => Decision::new(false, Signal::OkePods, reason),
        None => decision,
    }
}

const APPLICATION_RESOURCES: &str = "takeover is set, but VNICs of this node's NativePodNetwork are kept for application resources: only the API server \
     knows which resource a pod requests, and a pod's start does not wait for it. OKE's own CNI continues to serve this \
     node; take over nodes of a pool without applicationResources";

const STAYS: &str = "but our pod network is installed on this node: in doubt it is maintained";

/// Why pods prevent the installation, and what to do. If OKE's own CNI is not here, there need be no proof that none of its
/// pods are left, because on most nodes it never was.
fn occupied(pods: &ForeignPods, oke: bool) -> Option<String> {
    const NEXT: &str = "drain the node, also of pods of DaemonSets, and delete files that are left from before a reboot; the \
                        next reconcile continues";
    match (pods, oke) {
        (Ok(None), _) | (Err(_), false) => None,
        (Ok(Some(what)), true) => Some(format!(
            "takeover is set, but pods of OKE's own CNI run on this node ({what}), and their addresses would be given to \
             other pods: {NEXT}"
        )),
        (Ok(Some(what)), false) => Some(format!(
            "pods of another pod network run on this node ({what}), perhaps of OKE's own CNI, and their addresses would be \
             given to other pods: {NEXT}"
        )),
        (Err(why), true) => Some(format!(
            "takeover is set, but pods of OKE's own CNI may run on this node ({why}): mount both directories that show them \
             (manifests/overlays/oke-vcn-native/takeover.yaml)"
        )),
    }
}

pub(crate) fn oke_cni(signals: &Signals, conf_files: &[ConfFile]) -> Option<(Signal, String)> {
    if let Some(file) = conf_files.iter().find(|file| file.is_oke()) {
        return Some((Signal::OkeConflist, format!("{} is present", file.name)));
    }
    (signals.set.oke_daemonset == Presence::Present)
        .then(|| (Signal::OkeDaemonSet, format!("the DaemonSet {OKE_DAEMONSET} exists")))
}

/// Every signal that says anything, the strongest first.
fn statements(settings: &Settings, signals: &Signals, conf_files: &[ConfFile]) -> Vec<Statement> {
    use StatementMeaning::{OtherNetwork, VcnNative};
    let setting = match settings.pod_network {
        PodNetwork::Auto => None,
        PodNetwork::VcnNative => Some((VcnNative, "the setting is vcn-native".to_owned())),
        PodNetwork::None => Some((OtherNetwork, "the setting is none".to_owned())),
    };
    let is_present = |seen: Presence| seen == Presence::Present;
    let npn = || (VcnNative, "the instance has a NativePodNetwork".to_owned());
    let daemon_set = || (VcnNative, format!("the DaemonSet {OKE_DAEMONSET} exists"));
    let flannel = conf_files.iter().find(|file| file.is_flannel());
    let metadata = format!("the instance metadata {METADATA_KEY}");
    let all = [
        (Signal::Setting, setting),
        (Signal::NodeLabel, flag(&format!("the node label {NODE_LABEL}"), signals.set.node_label.as_deref())),
        (Signal::InstanceMetadata, flag(&metadata, signals.instance_metadata.as_deref())),
        (Signal::NativePodNetwork, is_present(signals.native_pod_network).then(npn)),
        (Signal::OkeDaemonSet, is_present(signals.set.oke_daemonset).then(daemon_set)),
        (
            Signal::FlannelConflist,
            flannel.map(|file| (OtherNetwork, format!("{} is a configuration of Flannel", file.name))),
        ),
    ];
    all.into_iter().filter_map(|(signal, said)| said.map(|(says, found)| (signal, says, found))).collect()
}

/// A text that should be `true` or `false`. An empty one is invalid, too.
fn flag(what: &str, value: Option<&str>) -> Option<(StatementMeaning, String)> {
    let value = value?;
    let says = match value.trim().to_ascii_lowercase().as_str() {
        "true" => StatementMeaning::VcnNative,
        "false" => StatementMeaning::OtherNetwork,
        _ => StatementMeaning::Invalid,
    };
    Some((says, format!("{what} is {value:?}")))
}
