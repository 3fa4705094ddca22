//! Every signal with every value, the conflicts between them, and rules that hold for every combination.

use std::path::Path;

use super::*;
use crate::observed::Fault;
use crate::settings::fixture::{self, conf_file as file};
use crate::signals::SignalOptions;

const SEEN: [Presence; 3] = [Presence::Unknown, Presence::Absent, Presence::Present];
const FLAGS: [Option<&str>; 5] = [None, Some("true"), Some("false"), Some("yes"), Some("")];

fn settings(pod_network: PodNetwork, takeover: bool) -> Settings {
    Settings { pod_network, takeover, ..fixture::settings_in(Path::new("/")) }
}

fn oke() -> ConfFile {
    file("10-oci.conflist", &["oci-ipvlan", "oci-ptp"])
}

fn flannel() -> ConfFile {
    file("10-flannel.conflist", &["flannel", "portmap"])
}

fn ours() -> ConfFile {
    file("05-vcn-native.conflist", &["vcn-native", "portmap"])
}

/// A node without foreign pods and without a record.
fn new(conf_files: &[ConfFile]) -> NodeState<'_> {
    NodeState { conf_files, pods: &Ok(None), installed_before: false }
}

/// Decides with one signal each: label, metadata, NativePodNetwork, OKE's DaemonSet, Flannel's DaemonSet.
fn auto(signals: &Signals, files: &[ConfFile]) -> (bool, Signal) {
    let decision = decide(&settings(PodNetwork::Auto, false), signals, new(files));
    assert!(!decision.reason.is_empty());
    (decision.install, decision.decided_by)
}

fn known(label: Option<&str>, metadata: Option<&str>, network: Presence, oke: Presence) -> Signals {
    Signals {
        set: SignalOptions { node_label: label.map(str::to_owned), oke_daemonset: oke },
        instance_metadata: metadata.map(str::to_owned),
        native_pod_network: network,
        application_resources: Presence::Unknown,
    }
}

#[test]
fn strongest_signal_decides() {
    use Presence::{Absent, Present, Unknown};
    let none = (Unknown, Unknown);
    for (label, metadata, (network, oke_set), files, expected) in [
        (None, None, none, vec![], (false, Signal::Nothing)),
        (Some("true"), None, none, vec![], (true, Signal::NodeLabel)),
        (Some("True "), None, none, vec![], (true, Signal::NodeLabel)),
        (Some("false"), None, none, vec![], (false, Signal::NodeLabel)),
        (Some("yes"), None, none, vec![], (false, Signal::NodeLabel)),
        (Some(""), None, none, vec![], (false, Signal::NodeLabel)),
        (None, Some("true"), none, vec![], (true, Signal::InstanceMetadata)),
        (None, Some("false"), none, vec![], (false, Signal::InstanceMetadata)),
        (None, Some("1"), none, vec![], (false, Signal::InstanceMetadata)),
        (None, None, (Present, Unknown), vec![], (true, Signal::NativePodNetwork)),
        (None, None, (Absent, Unknown), vec![], (false, Signal::Nothing)),
        (None, None, (Unknown, Present), vec![], (false, Signal::OkeDaemonSet)),
        (None, None, (Unknown, Absent), vec![], (false, Signal::Nothing)),
        (None, None, none, vec![flannel()], (false, Signal::FlannelConflist)),
        (None, None, none, vec![oke()], (false, Signal::Nothing)),
        (None, None, none, vec![file("87-podman.conflist", &["bridge"])], (false, Signal::Nothing)),
        // The strongest of several.
        (Some("false"), Some("true"), (Present, Unknown), vec![], (false, Signal::NodeLabel)),
        (Some("true"), Some("false"), (Absent, Unknown), vec![flannel()], (true, Signal::NodeLabel)),
        (Some("yes"), Some("true"), (Present, Unknown), vec![], (false, Signal::NodeLabel)),
        (None, Some("false"), (Present, Unknown), vec![], (false, Signal::InstanceMetadata)),
        (None, Some("true"), none, vec![flannel()], (true, Signal::InstanceMetadata)),
        (None, None, (Present, Unknown), vec![flannel()], (false, Signal::FlannelConflist)),
    ] {
        let case = format!("{label:?} {metadata:?} {network:?} {oke_set:?} {files:?}");
        assert_eq!(auto(&known(label, metadata, network, oke_set), &files), expected, "{case}");
    }
}

#[test]
fn setting_outranks_every_signal() {
    use Presence::{Present, Unknown};
    let everything_for = known(Some("true"), Some("true"), Present, Unknown);
    let decision = decide(&settings(PodNetwork::None, true), &everything_for, new(&[]));
    assert_eq!((decision.install, decision.decided_by), (false, Signal::Setting));
    assert_eq!(decision.against, [Signal::NodeLabel, Signal::InstanceMetadata, Signal::NativePodNetwork]);

    let everything_against = known(Some("false"), Some("false"), Unknown, Unknown);
    let decision = decide(&settings(PodNetwork::VcnNative, false), &everything_against, new(&[flannel()]));
    assert_eq!((decision.install, decision.decided_by), (true, Signal::Setting));
    assert_eq!(decision.against.len(), 3);
}

#[test]
fn okes_cni_prevents_installation_without_takeover() {
    use Presence::{Present, Unknown};
    for pod_network in [PodNetwork::Auto, PodNetwork::VcnNative] {
        for (oke_set, files, expected) in [
            (Unknown, vec![oke()], Signal::OkeConflist),
            (Unknown, vec![file("05-renamed.conflist", &["oci-ipvlan"])], Signal::OkeConflist),
            (Present, vec![], Signal::OkeDaemonSet),
        ] {
            let signals = known(Some("true"), None, Present, oke_set);
            let decision = decide(&settings(pod_network, false), &signals, new(&files));
            assert_eq!((decision.install, decision.decided_by), (false, expected));
            assert!(decision.reason.contains("takeover is not set"), "{}", decision.reason);
            assert!(decide(&settings(pod_network, true), &signals, new(&files)).install);
        }
    }
}

#[test]
fn okes_daemonset_alone_keeps_an_existing_installation() {
    use Presence::{Present, Unknown};
    let of = |pod_network, label, here: NodeState<'_>| {
        let signals = known(label, None, Unknown, Present);
        let decision = decide(&settings(pod_network, false), &signals, here);
        (decision.install, decision.decided_by, decision.against, decision.reason)
    };
    let in_place = [ours()];
    let remembered = |conf_files| NodeState { installed_before: true, ..new(conf_files) };
    let (label, beside) = (Some("true"), vec![Signal::OkeDaemonSet]);
    let reason = "the node label oci.oraclecloud.com/vcn-native-ip-cni is \"true\"; the DaemonSet vcn-native-ip-cni exists, and \
                  OKE's own CNI hands out the same addresses, but our pod network is installed on this node and OKE's \
                  own CNI is not: it is maintained";
    // Our configuration was emptied, half-written or removed: it must be repaired.
    let spoilt = [fixture::faulty(vcn::CONFLIST_FILE, &[], Fault::Refused("half".to_owned()))];
    let emptied = [file("05-vcn-native.conflist", &["portmap"])];
    for here in [new(&in_place), remembered(&[]), remembered(&spoilt), remembered(&emptied)] {
        assert_eq!(of(PodNetwork::Auto, label, here), (true, Signal::NodeLabel, beside.clone(), reason.to_owned()));
        let kept = of(PodNetwork::VcnNative, None, here);
        assert_eq!((kept.0, kept.1, kept.2), (true, Signal::Setting, beside.clone()));
        // Unknown pods do not matter to an existing installation; pods that were found do.
        let pods = Err("why".to_owned());
        assert!(of(PodNetwork::Auto, label, NodeState { pods: &pods, ..here }).0);
        let pods = Ok(Some("a pod".to_owned()));
        let seen = of(PodNetwork::Auto, label, NodeState { pods: &pods, ..here });
        assert_eq!((seen.0, seen.1), (false, Signal::OkePods));
    }
    // A new node; a file of OKE's; a file of our name without our plugin; no other signal than the DaemonSet.
    let (beside, okes) = ([ours(), oke()], [oke()]);
    for (label, here, expected) in [
        (label, new(&[]), Signal::OkeDaemonSet),
        (label, new(&beside), Signal::OkeConflist),
        (label, remembered(&okes), Signal::OkeConflist),
        (label, new(&emptied), Signal::OkeDaemonSet),
        (None, new(&in_place), Signal::OkeDaemonSet),
        (None, remembered(&[]), Signal::OkeDaemonSet),
    ] {
        let refused = of(PodNetwork::Auto, label, here);
        assert_eq!((refused.0, refused.1, refused.2), (false, expected, vec![]), "{here:?}");
    }
}

#[test]
fn application_resources_prevent_takeover() {
    let with = |application_resources| Signals {
        application_resources,
        ..known(Some("true"), None, Presence::Present, Presence::Present)
    };
    let decided = |application_resources, takeover, here| {
        decide(&settings(PodNetwork::Auto, takeover), &with(application_resources), here)
    };
    let okes = [oke()];
    for files in [&[][..], &okes] {
        let refused = decided(Presence::Present, true, new(files));
        assert_eq!((refused.install, refused.decided_by), (false, Signal::ApplicationResources), "{refused:?}");
        assert!(refused.reason.contains("application resources") && refused.reason.contains("take over nodes"));
        assert_ne!(
            decided(Presence::Present, false, new(files)).decided_by,
            Signal::ApplicationResources,
            "no takeover"
        );
        assert!(decided(Presence::Unknown, true, new(files)).install);
    }
    // A node that was taken over keeps our pod network.
    assert!(decided(Presence::Present, true, NodeState { installed_before: true, ..new(&okes) }).install);
    let alone = Signals { set: SignalOptions::default(), ..with(Presence::Present) };
    assert!(decide(&settings(PodNetwork::Auto, true), &alone, new(&[])).install, "OKE's own CNI is not there");
}

#[test]
fn rules_hold_for_every_combination() {
    let alone = [vec![], vec![oke()], vec![flannel()], vec![oke(), flannel()]];
    let beside = alone.clone().map(|files| [vec![ours()], files].concat());
    let file_sets = [alone, beside].concat();
    let mut combinations = 0;
    for label in FLAGS {
        for metadata in FLAGS {
            for seen in 0..9 {
                let signals = known(label, metadata, SEEN[seen / 3], SEEN[seen % 3]);
                for files in &file_sets {
                    for installed_before in [false, true] {
                        rules_hold(&signals, NodeState { installed_before, ..new(files) });
                        combinations += 1;
                    }
                }
            }
        }
    }
    assert_eq!(combinations, 5 * 5 * 9 * 8 * 2);
}

fn rules_hold(signals: &Signals, here: NodeState<'_>) {
    let files = here.conf_files;
    let oke_file = files.iter().any(ConfFile::is_oke);
    let oke_present = signals.set.oke_daemonset == Presence::Present || oke_file;
    // The DaemonSet does not end an existing installation.
    let stands = (here.installed_before || files.iter().any(ConfFile::is_ours)) && !oke_file;
    for takeover in [false, true] {
        let of = |pod_network| decide(&settings(pod_network, takeover), signals, here);
        assert!(!of(PodNetwork::None).install);
        assert_eq!(of(PodNetwork::VcnNative).install, takeover || !oke_present || stands);
        let decision = of(PodNetwork::Auto);
        assert!(!decision.install || takeover || !oke_present || stands, "{signals:?} {here:?} {decision:?}");
        assert!(!decision.against.contains(&decision.decided_by));
        let among =
            |pods: &ForeignPods| decide(&settings(PodNetwork::Auto, takeover), signals, NodeState { pods, ..here });
        let living = among(&Ok(Some("a pod".into())));
        assert!(!living.install, "two pods would have one address: {living:?}");
        let untold = among(&Err("why".into()));
        assert!(!untold.install || decision.install && (!oke_present || stands), "{untold:?}");
    }
}

#[test]
fn another_network_is_never_concluded_from_silence_or_doubt() {
    use Presence::{Absent, Present, Unknown};
    let another = |network: PodNetwork, signals: &Signals, files: &[ConfFile]| {
        let here = NodeState { installed_before: true, ..new(files) };
        let decision = decide(&settings(network, false), signals, here);
        assert!(!decision.install || !decision.another, "{decision:?}");
        decision.another
    };
    let auto = |signals: &Signals, files: &[ConfFile]| another(PodNetwork::Auto, signals, files);
    let none = known(None, None, Unknown, Unknown);
    assert!(another(PodNetwork::None, &known(Some("true"), None, Present, Unknown), &[ours()]));
    assert!(auto(&known(Some("false"), None, Unknown, Unknown), &[ours()]));
    assert!(auto(&known(None, Some("false"), Unknown, Unknown), &[ours()]));
    assert!(auto(&known(None, None, Present, Unknown), &[ours(), oke()]), "OKE's own CNI is on this node");
    assert!(auto(&known(None, None, Absent, Unknown), &[ours(), flannel()]));

    assert!(!auto(&none, &[ours()]), "silence");
    assert!(!auto(&known(None, None, Absent, Unknown), &[ours()]), "a new node has none yet");
    assert!(!auto(&none, &[ours(), flannel()]), "it may be stale while the sources are silent");
    assert!(!auto(&known(None, None, Present, Unknown), &[ours(), flannel()]), "one against the other");
    assert!(!auto(&known(Some("maybe"), None, Absent, Unknown), &[ours(), flannel()]), "invalid");
    assert!(!auto(&known(None, None, Unknown, Present), &[ours()]), "one object for all nodes");
    let set = |files: &[ConfFile]| another(PodNetwork::VcnNative, &none, files);
    assert!(!set(&[ours(), oke()]), "the setting selects our pod network");
}

#[test]
fn doubt_keeps_an_existing_installation_only() {
    use Presence::{Present, Unknown};
    let decided = |signals: &Signals, here: NodeState<'_>| {
        let decision = decide(&settings(PodNetwork::Auto, false), signals, here);
        assert!(!decision.another, "{decision:?}");
        (decision.install, decision.decided_by, decision.against)
    };
    let garbage = known(Some("yes"), Some("true"), Present, Unknown);
    let against = known(None, None, Present, Unknown);
    let (flannels, both, all) = ([flannel()], [ours(), flannel()], [ours(), flannel(), oke()]);
    let remembered = |conf_files| NodeState { installed_before: true, ..new(conf_files) };
    for here in [remembered(&flannels), remembered(&both)] {
        assert_eq!(decided(&garbage, here), (true, Signal::NodeLabel, vec![]));
        assert_eq!(decided(&against, here), (true, Signal::NativePodNetwork, vec![Signal::FlannelConflist]));
    }
    // Our file may come with an image; OKE's is of this node.
    for here in [new(&flannels), new(&both), remembered(&all)] {
        assert_eq!(decided(&garbage, here), (false, Signal::NodeLabel, vec![]), "{here:?}");
        assert_eq!(decided(&against, here), (false, Signal::FlannelConflist, vec![]), "{here:?}");
    }
}
