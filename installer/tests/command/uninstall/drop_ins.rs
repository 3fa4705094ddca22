//! Files that the agent wrote for the host's network managers.

use std::fs;
use std::process::Command;

use installer::drop_ins::{self, note_drop_in};
use sandbox::Container;

use super::kernel::Host;
use crate::node::Node;

#[test]
fn our_drop_ins_go_and_other_ones_stay() {
    let node = Node::installed();
    let ours = [drop_ins::NETWORKD, drop_ins::NETWORKD_PODS, drop_ins::NETWORK_MANAGER];
    let host = node.path("host");
    let put = |below: &str, text: &str| {
        let path = host.join(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put("etc/systemd/network/20-foreign.network", "foreign");
    for below in ours {
        note_drop_in(&node.path("lib"), below).unwrap();
        put(below, &format!("{}[Match]\n", drop_ins::MARK));
    }
    put(drop_ins::NETWORKD_VNICS, "[Match]\n# foreign, by our name\n");
    // Killed while it wrote.
    put("etc/systemd/network/10-vcn-native-vnics.vcn-native-new", &drop_ins::MARK[..20]);
    let patched = Container::uninstaller_of_drop_ins().unwrap();
    let (code, text) = node.uninstall_in(&patched, &Host::new(), &[]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("10-vcn-native-vnics.network: it was not written by us"), "{text}");
    let left = Command::new("find").arg(&host).args(["-type", "f", "-printf", "%P\n"]).output().unwrap().stdout;
    let mut left: Vec<_> = std::str::from_utf8(&left).unwrap().lines().collect();
    left.sort_unstable();
    assert_eq!(left, ["etc/systemd/network/10-vcn-native-vnics.network", "etc/systemd/network/20-foreign.network"]);
    assert!(node.knows_nothing());
}

#[test]
fn drop_in_that_is_not_mounted_is_reported() {
    let node = Node::installed();
    note_drop_in(&node.path("lib"), drop_ins::NETWORK_MANAGER).unwrap();
    let (code, text) = node.uninstall(&Host::new(), &[]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("NetworkManager/conf.d/50-vcn-native.conf was written by the node agent"), "{text}");
    assert!(text.contains("manifests/uninstall-drop-ins") && node.path("lib/drop-ins.json").exists(), "{text}");
    let (code, text) = node.uninstall(&Host::new(), &["--force"]);
    assert!(code == 0 && text.contains("left: "), "{text}");
    assert!(node.knows_nothing());
}
