//! Whether this node's pod network is ours to serve: a pure function of the setting, the signals and the CNI
//! configurations found. Each signal has a voice; the strongest one that says anything decides, and "no" costs nothing
//! while a wrong "yes" takes a working network down, so that every doubt means no.

#[cfg(test)]
mod tests;

use std::path::Path;

use crate::observed::ConfFile;
use crate::signals::{FLANNEL_DAEMONSET, METADATA_KEY, NODE_LABEL, OKE_DAEMONSET};
use crate::{Occupants, PodNetwork, Seen, Settings, Signal, Signals};

/// Whether to install, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether binaries and configuration belong on this node.
    pub install: bool,
    /// Whether something says that another pod network is meant here: not for silence, not in doubt.
    pub another: bool,
    /// Whether anything here shows OKE's own CNI (its configuration, its DaemonSet), or nothing can be seen. Pods of another
    /// network show it, too, but are looked for only where all else says to install.
    pub oke: bool,
    /// The signal that decided.
    pub decided_by: Signal,
    /// Signals that say the contrary but are weaker.
    pub against: Vec<Signal>,
    /// For people: one sentence without a full stop.
    pub reason: String,
}

/// What this node itself shows, beside the signals.
#[derive(Clone, Copy, Debug)]
pub struct Here<'a> {
    /// What lies in the runtime's configuration directory.
    pub conf_files: &'a [ConfFile],
    /// Whether pods of another network live here.
    pub pods: &'a Occupants,
    /// Whether we remember that our configuration is in place: what somebody removed or spoilt is ours to heal.
    pub remembered: bool,
}

/// What one signal says.
struct Voice {
    signal: Signal,
    says: Says,
    found: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Says {
    VcnNative,
    Other,
    Garbage,
}

impl Decision {
    fn new(install: bool, decided_by: Signal, reason: String) -> Self {
        Self { install, another: false, oke: false, decided_by, against: Vec::new(), reason }
    }

    /// The same where that is said.
    fn another(self, another: bool) -> Self {
        Self { another, ..self }
    }

    /// Without a look at the configuration directory nobody knows whose pod network this is.
    pub(crate) fn unreadable(conf_dir: &Path) -> Self {
        let reason = format!("{} cannot be read, so nothing is touched", conf_dir.display());
        Self { oke: true, ..Self::new(false, Signal::Nothing, reason) }
    }
}

/// Decides. In order: the setting; the node label; the instance metadata; the NativePodNetwork; the DaemonSets; what
/// lies in the configuration directory, which may be stale and so never speaks *for* installing. Signals weaker than
/// the instance metadata only decide for it when nothing speaks of Flannel. Where OKE's own CNI is present, nothing is
/// installed unless takeover is set: both would hand out the same addresses. Its DaemonSet alone, which says nothing of this
/// node, stops a first installation only: what is ours here is kept up. So it is in doubt (a signal that makes no sense, two
/// of the weak ones that contradict each other) where we remember to have installed. And nothing is installed while pods of
/// another network live on the node, whoever made it: their addresses may be among those. A node whose VNICs are kept for
/// application resources is not taken over: pods would lose what they request.
#[must_use]
pub fn decide(settings: &Settings, signals: &Signals, here: Here<'_>) -> Decision {
    let oke = oke_cni(signals, here.conf_files).is_some() || matches!(here.pods, Occupants::Some(_));
    Decision { oke, ..by_voices(settings, signals, here) }
}

fn by_voices(settings: &Settings, signals: &Signals, here: Here<'_>) -> Decision {
    let Here { conf_files, pods, remembered } = here;
    let voices = voices(settings, signals, conf_files);
    let Some(strongest) = voices.first() else {
        return Decision::new(
            false,
            Signal::Nothing,
            "no signal says which pod network this cluster uses; the setting (POD_NETWORK: vcn-native or none) would"
                .to_owned(),
        );
    };
    // What we remember of doing here speaks against handing over what nobody clearly asks for. A file of OKE's is of this node.
    let stays = remembered && !conf_files.iter().any(ConfFile::is_oke);
    let contrary: Vec<&Voice> =
        voices.iter().filter(|voice| voice.says != strongest.says && voice.says != Says::Garbage).collect();
    let mut decision = match (strongest.says, contrary.first()) {
        (Says::Garbage, _) if stays => {
            let reason = format!("{}, which is neither true nor false, {STAYS}", strongest.found);
            Decision::new(true, strongest.signal, reason)
        }
        (Says::Garbage, _) => {
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
            // What speaks of Flannel may be left from before, where those that would speak against it were not heard.
            let heard = signals.native_pod_network == Seen::Absent;
            decision.another(strongest.signal < Signal::NativePodNetwork || heard)
        }
    };
    if decision.install {
        let oke = oke_cni(signals, conf_files);
        let ours = remembered || conf_files.iter().any(ConfFile::is_ours);
        let kept = ours && oke.as_ref().is_some_and(|(signal, _)| stands(strongest.signal, *signal));
        // Its DaemonSet may put a pod on none of the nodes; and whoever set that the network is ours meant another thing.
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
                     and nothing of OKE's is on this node: ours is kept up",
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
    // Nothing is the contrary of garbage.
    let contrary = contrary.into_iter().filter(|_| strongest.says != Says::Garbage);
    decision.against.extend(contrary.map(|voice| voice.signal));
    decision
}

/// Why a node with such VNICs is not taken over.
const APPLICATION_RESOURCES: &str = "takeover is set, but VNICs of this node's NativePodNetwork are kept for application resources: which resource a pod \
     requests, only the API server knows, and a pod's start does not wait for it. OKE's own CNI goes on serving this node; \
     take over nodes of a pool without applicationResources";

/// What follows from doubt where we were before.
const STAYS: &str = "but this node's pod network is ours already: in doubt ours is kept up";

/// Whether what is ours already goes on beside what shows OKE's own CNI. The DaemonSet is one object for all nodes, and may
/// put a pod on none of them: nodes whose pods are ours would all be given up for it. A file is of this node. Where the
/// DaemonSet is all that speaks for ours, it is no reason to go on beside it.
fn stands(strongest: Signal, oke: Signal) -> bool {
    oke == Signal::OkeDaemonSet && strongest != Signal::OkeDaemonSet
}

/// Why pods that are there stand in the way, and what to do. Where OKE's own CNI is no more, it need not be proven that none
/// are left of it, for on most nodes it never was.
fn occupied(pods: &Occupants, oke: bool) -> Option<String> {
    const NEXT: &str = "drain the node, those of DaemonSets too; delete files that are of pods before a reboot; then it goes \
                        on at the next look";
    match (pods, oke) {
        (Occupants::None, _) | (Occupants::Unknown(_), false) => None,
        (Occupants::Some(what), true) => Some(format!(
            "takeover is set, but pods of OKE's own CNI live on this node ({what}), and their addresses would be given to \
             others: {NEXT}"
        )),
        (Occupants::Some(what), false) => Some(format!(
            "pods of another pod network live on this node ({what}), OKE's own CNI's perhaps, and their addresses would be \
             given to others: {NEXT}"
        )),
        (Occupants::Unknown(why), true) => Some(format!(
            "takeover is set, but whether pods of OKE's own CNI live on this node cannot be told ({why}): show the agent \
             both directories that tell (manifests/overlays/oke-vcn-native/takeover.yaml)"
        )),
    }
}

/// Everything that says anything, the strongest first.
fn voices(settings: &Settings, signals: &Signals, conf_files: &[ConfFile]) -> Vec<Voice> {
    let setting = match settings.pod_network {
        PodNetwork::Auto => None,
        PodNetwork::VcnNative => Some((Says::VcnNative, "the setting is vcn-native")),
        PodNetwork::None => Some((Says::Other, "the setting is none")),
    };
    let setting = setting.map(|(says, found)| Voice { signal: Signal::Setting, says, found: found.to_owned() });
    let present = |seen: Seen, signal: Signal, says: Says, found: String| {
        (seen == Seen::Present).then_some(Voice { signal, says, found })
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
            Says::Other,
            format!("the DaemonSet {FLANNEL_DAEMONSET} exists"),
        ),
        flannel_file.map(|file| Voice {
            signal: Signal::FlannelConflist,
            says: Says::Other,
            found: format!("{} is a configuration of Flannel's", file.name),
        }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A text that should be `true` or `false`. An empty one is garbage too: somebody set it.
fn flag(signal: Signal, what: &str, value: Option<&str>) -> Option<Voice> {
    let value = value?;
    let says = match value.trim().to_ascii_lowercase().as_str() {
        "true" => Says::VcnNative,
        "false" => Says::Other,
        _ => Says::Garbage,
    };
    Some(Voice { signal, says, found: format!("{what} is {value:?}") })
}

pub(crate) fn oke_cni(signals: &Signals, conf_files: &[ConfFile]) -> Option<(Signal, String)> {
    if let Some(file) = conf_files.iter().find(|file| file.is_oke()) {
        return Some((Signal::OkeConflist, format!("{} is present", file.name)));
    }
    (signals.oke_daemonset == Seen::Present)
        .then(|| (Signal::OkeDaemonSet, format!("the DaemonSet {OKE_DAEMONSET} exists")))
}
