//! What each signal says about the pod network.

use super::signals::{METADATA_KEY, NODE_LABEL, OKE_DAEMONSET};
use super::{PodNetwork, Presence, Signal, Signals};
use crate::observed::ConfFile;
use crate::settings::Settings;

pub(super) struct Statement {
    pub(super) signal: Signal,
    pub(super) says: StatementMeaning,
    pub(super) found: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StatementMeaning {
    VcnNative,
    OtherNetwork,
    Invalid,
}

/// Every signal that says anything, the strongest first.
pub(super) fn statements(settings: &Settings, signals: &Signals, conf_files: &[ConfFile]) -> Vec<Statement> {
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
    let said = all.into_iter().filter_map(|(signal, said)| Some((signal, said?)));
    said.map(|(signal, (says, found))| Statement { signal, says, found }).collect()
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
