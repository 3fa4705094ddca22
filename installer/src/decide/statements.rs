//! What each signal says about the pod network.

use super::signals::{METADATA_KEY, NODE_LABEL, OKE_DAEMONSET};
use super::{PodNetwork, Presence, Signal, Signals};
use crate::observed::ConfFile;
use crate::settings::Settings;

/// One signal and its statement.
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
    let statement = |signal, says, found: String| Some(Statement { signal, says, found });
    let present = |seen: Presence, signal, says, found: String| {
        if seen == Presence::Present { statement(signal, says, found) } else { None }
    };
    let daemon_set = |name: &str| format!("the DaemonSet {name} exists");
    let setting = match settings.pod_network {
        PodNetwork::Auto => None,
        PodNetwork::VcnNative => {
            statement(Signal::Setting, StatementMeaning::VcnNative, "the setting is vcn-native".to_owned())
        }
        PodNetwork::None => {
            statement(Signal::Setting, StatementMeaning::OtherNetwork, "the setting is none".to_owned())
        }
    };
    let label = flag(Signal::NodeLabel, &format!("the node label {NODE_LABEL}"), signals.set.node_label.as_deref());
    let metadata = format!("the instance metadata {METADATA_KEY}");
    let metadata = flag(Signal::InstanceMetadata, &metadata, signals.instance_metadata.as_deref());
    let (npn, oke) = (signals.native_pod_network, signals.set.oke_daemonset);
    let npn_text = "the instance has a NativePodNetwork".to_owned();
    let file = conf_files.iter().find(|file| file.is_flannel());
    [
        setting,
        label,
        metadata,
        present(npn, Signal::NativePodNetwork, StatementMeaning::VcnNative, npn_text),
        present(oke, Signal::OkeDaemonSet, StatementMeaning::VcnNative, daemon_set(OKE_DAEMONSET)),
        file.and_then(|file| {
            let found = format!("{} is a configuration of Flannel", file.name);
            statement(Signal::FlannelConflist, StatementMeaning::OtherNetwork, found)
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
        "true" => StatementMeaning::VcnNative,
        "false" => StatementMeaning::OtherNetwork,
        _ => StatementMeaning::Invalid,
    };
    Some(Statement { signal, says, found: format!("{what} is {value:?}") })
}
