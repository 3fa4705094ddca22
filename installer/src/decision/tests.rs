//! Every signal with every value, the conflicts between them, and what no combination may do.

use super::*;
use crate::fixture;
use crate::observed::Contents;

const SEEN: [Seen; 3] = [Seen::Unknown, Seen::Absent, Seen::Present];
const FLAGS: [Option<&str>; 5] = [None, Some("true"), Some("false"), Some("yes"), Some("")];

fn settings(pod_network: PodNetwork, takeover: bool) -> Settings {
    Settings { pod_network, takeover, ..fixture::settings_in(Path::new("/")) }
}

fn file(name: &str, plugins: &[&str]) -> ConfFile {
    let types = plugins.iter().map(|name| (*name).to_owned()).collect();
    ConfFile { name: name.to_owned(), contents: Contents::Plugins(types) }
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

/// Decides with one signal each: label, metadata, NativePodNetwork, OKE's DaemonSet, Flannel's DaemonSet.
fn auto(signals: (Option<&str>, Option<&str>, Seen, Seen, Seen), files: &[ConfFile]) -> (bool, Signal) {
    let decision = decide(&settings(PodNetwork::Auto, false), &known(signals), files, &Occupants::None);
    assert!(!decision.reason.is_empty());
    (decision.install, decision.decided_by)
}

fn known((label, metadata, network, oke, flannel): (Option<&str>, Option<&str>, Seen, Seen, Seen)) -> Signals {
    Signals {
        node_label: label.map(str::to_owned),
        instance_metadata: metadata.map(str::to_owned),
        native_pod_network: network,
        oke_daemonset: oke,
        flannel_daemonset: flannel,
    }
}

#[test]
fn each_signal_alone() {
    use Seen::{Absent, Present, Unknown};
    let none = (Unknown, Unknown, Unknown);
    for (label, metadata, (network, oke_set, flannel_set), files, expected) in [
        (None, None, none, vec![], (false, Signal::Nothing)),
        (Some("true"), None, none, vec![], (true, Signal::NodeLabel)),
        (Some("True "), None, none, vec![], (true, Signal::NodeLabel)),
        (Some("false"), None, none, vec![], (false, Signal::NodeLabel)),
        (Some("yes"), None, none, vec![], (false, Signal::NodeLabel)),
        (Some(""), None, none, vec![], (false, Signal::NodeLabel)),
        (None, Some("true"), none, vec![], (true, Signal::InstanceMetadata)),
        (None, Some("false"), none, vec![], (false, Signal::InstanceMetadata)),
        (None, Some("1"), none, vec![], (false, Signal::InstanceMetadata)),
        (None, None, (Present, Unknown, Unknown), vec![], (true, Signal::NativePodNetwork)),
        (None, None, (Absent, Unknown, Unknown), vec![], (false, Signal::Nothing)),
        (None, None, (Unknown, Present, Unknown), vec![], (false, Signal::OkeDaemonSet)),
        (None, None, (Unknown, Absent, Unknown), vec![], (false, Signal::Nothing)),
        (None, None, (Unknown, Unknown, Present), vec![], (false, Signal::FlannelDaemonSet)),
        (None, None, (Unknown, Unknown, Absent), vec![], (false, Signal::Nothing)),
        (None, None, none, vec![flannel()], (false, Signal::FlannelConflist)),
        (None, None, none, vec![oke()], (false, Signal::Nothing)),
        (None, None, none, vec![file("87-podman.conflist", &["bridge"])], (false, Signal::Nothing)),
    ] {
        let case = format!("{label:?} {metadata:?} {network:?} {oke_set:?} {flannel_set:?} {files:?}");
        assert_eq!(auto((label, metadata, network, oke_set, flannel_set), &files), expected, "{case}");
    }
}

#[test]
fn the_stronger_signal_decides() {
    use Seen::{Absent, Present, Unknown};
    for (label, metadata, (network, flannel_set), files, expected) in [
        (Some("false"), Some("true"), (Present, Unknown), vec![], (false, Signal::NodeLabel)),
        (Some("true"), Some("false"), (Absent, Present), vec![flannel()], (true, Signal::NodeLabel)),
        (Some("yes"), Some("true"), (Present, Absent), vec![], (false, Signal::NodeLabel)),
        (None, Some("false"), (Present, Unknown), vec![], (false, Signal::InstanceMetadata)),
        (None, Some("true"), (Absent, Present), vec![], (true, Signal::InstanceMetadata)),
        (None, Some("true"), (Unknown, Unknown), vec![flannel()], (true, Signal::InstanceMetadata)),
    ] {
        let case = format!("{label:?} {metadata:?} {network:?} {flannel_set:?} {files:?}");
        assert_eq!(auto((label, metadata, network, Unknown, flannel_set), &files), expected, "{case}");
    }
}

#[test]
fn a_weak_signal_gives_way_to_anything_of_flannel() {
    use Seen::{Present, Unknown};
    for (flannel_set, files, expected) in
        [(Present, vec![], Signal::FlannelDaemonSet), (Unknown, vec![flannel()], Signal::FlannelConflist)]
    {
        assert_eq!(auto((None, None, Present, Unknown, flannel_set), &files), (false, expected));
        let takeover = settings(PodNetwork::Auto, true);
        let decision = decide(&takeover, &known((None, None, Unknown, Present, flannel_set)), &files, &Occupants::None);
        assert_eq!((decision.install, decision.decided_by), (false, expected));
    }
}

#[test]
fn the_setting_outranks_every_signal() {
    use Seen::{Present, Unknown};
    let everything_for = known((Some("true"), Some("true"), Present, Unknown, Unknown));
    let decision = decide(&settings(PodNetwork::None, true), &everything_for, &[], &Occupants::None);
    assert_eq!((decision.install, decision.decided_by), (false, Signal::Setting));
    assert_eq!(decision.against, [Signal::NodeLabel, Signal::InstanceMetadata, Signal::NativePodNetwork]);

    let everything_against = known((Some("false"), Some("false"), Unknown, Unknown, Present));
    let decision = decide(&settings(PodNetwork::VcnNative, false), &everything_against, &[flannel()], &Occupants::None);
    assert_eq!((decision.install, decision.decided_by), (true, Signal::Setting));
    assert_eq!(decision.against.len(), 4);
}

#[test]
fn okes_own_cni_is_never_doubled_without_takeover() {
    use Seen::{Present, Unknown};
    for pod_network in [PodNetwork::Auto, PodNetwork::VcnNative] {
        for (oke_set, files, expected) in [
            (Unknown, vec![oke()], Signal::OkeConflist),
            (Unknown, vec![file("05-renamed.conflist", &["oci-ipvlan"])], Signal::OkeConflist),
            (Present, vec![], Signal::OkeDaemonSet),
        ] {
            let signals = known((Some("true"), None, Present, oke_set, Unknown));
            let decision = decide(&settings(pod_network, false), &signals, &files, &Occupants::None);
            assert_eq!((decision.install, decision.decided_by), (false, expected));
            assert!(decision.reason.contains("takeover is not set"), "{}", decision.reason);
            assert!(decide(&settings(pod_network, true), &signals, &files, &Occupants::None).install);
        }
    }
}

#[test]
fn okes_daemonset_alone_takes_no_node_from_us_that_is_ours_already() {
    use Seen::{Present, Unknown};
    let of = |pod_network, label, files: &[ConfFile]| {
        let signals = known((label, None, Unknown, Present, Unknown));
        let decision = decide(&settings(pod_network, false), &signals, files, &Occupants::None);
        (decision.install, decision.decided_by, decision.against, decision.reason)
    };
    let (label, beside) = (Some("true"), vec![Signal::OkeDaemonSet]);
    let reason = "the node label oci.oraclecloud.com/vcn-native-ip-cni is \"true\"; the DaemonSet vcn-native-ip-cni exists, and \
                  OKE's own CNI hands out the same addresses, but 05-vcn-native.conflist is in place and nothing of OKE's is \
                  on this node: ours is kept up";
    let kept = of(PodNetwork::Auto, label, &[ours()]);
    assert_eq!(kept, (true, Signal::NodeLabel, beside.clone(), reason.to_owned()));
    let kept = of(PodNetwork::VcnNative, None, &[ours()]);
    assert_eq!((kept.0, kept.1, kept.2), (true, Signal::Setting, beside));
    // Not of this node; of this node; a file of our name without our plugin; nothing but the DaemonSet for ours.
    let emptied = file("05-vcn-native.conflist", &["portmap"]);
    for (label, files, expected) in [
        (label, vec![], Signal::OkeDaemonSet),
        (label, vec![ours(), oke()], Signal::OkeConflist),
        (label, vec![emptied], Signal::OkeDaemonSet),
        (None, vec![ours()], Signal::OkeDaemonSet),
    ] {
        let refused = of(PodNetwork::Auto, label, &files);
        assert_eq!((refused.0, refused.1, refused.2), (false, expected, vec![]), "{files:?}");
    }
}

#[test]
fn no_combination_breaks_the_rules() {
    let alone = [vec![], vec![oke()], vec![flannel()], vec![oke(), flannel()]];
    let beside = alone.clone().map(|files| [vec![ours()], files].concat());
    let file_sets = [alone, beside].concat();
    let mut combinations = 0;
    for label in FLAGS {
        for metadata in FLAGS {
            for seen in 0..27 {
                let (network, oke_set, flannel_set) = (SEEN[seen / 9], SEEN[seen / 3 % 3], SEEN[seen % 3]);
                let signals = known((label, metadata, network, oke_set, flannel_set));
                for files in &file_sets {
                    rules_hold(&signals, files);
                    combinations += 1;
                }
            }
        }
    }
    assert_eq!(combinations, 5 * 5 * 27 * 8);
}

fn rules_hold(signals: &Signals, files: &[ConfFile]) {
    let oke_file = files.iter().any(ConfFile::is_oke);
    let oke_present = signals.oke_daemonset == Seen::Present || oke_file;
    // The DaemonSet does not stop what is in place.
    let stands = files.iter().any(ConfFile::is_ours) && !oke_file;
    let flannel_present = signals.flannel_daemonset == Seen::Present || files.iter().any(ConfFile::is_flannel);
    let strong = signals.node_label.as_deref().or(signals.instance_metadata.as_deref());
    let weak = signals.native_pod_network == Seen::Present || signals.oke_daemonset == Seen::Present;
    for takeover in [false, true] {
        let of = |pod_network| decide(&settings(pod_network, takeover), signals, files, &Occupants::None);
        assert!(!of(PodNetwork::None).install);
        assert_eq!(of(PodNetwork::VcnNative).install, takeover || !oke_present || stands);
        let decision = of(PodNetwork::Auto);
        let positive = strong.map_or(weak && !flannel_present, |text| text == "true");
        let stands = stands && (strong.is_some() || signals.native_pod_network == Seen::Present);
        let free = takeover || !oke_present || stands;
        assert_eq!(decision.install, positive && free, "{signals:?} {files:?} {decision:?}");
        assert!(!decision.against.contains(&decision.decided_by));
        let living = decide(&settings(PodNetwork::Auto, takeover), signals, files, &Occupants::Some("a pod".into()));
        assert!(!living.install, "two pods would have one address: {living:?}");
        let untold = decide(&settings(PodNetwork::Auto, takeover), signals, files, &Occupants::Unknown("why".into()));
        assert_eq!(untold.install, decision.install && !oke_present, "{untold:?}");
    }
}
