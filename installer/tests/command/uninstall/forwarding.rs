//! The next pod network is installed before our network is removed, and finds forwarding switched on.

use std::fs;

use super::kernel::Host;
use crate::node::{FLANNEL, Node};

const KEYS: [&str; 2] = ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"];

fn forwarding(host: &Host) -> [String; 2] {
    host.inside(|| KEYS.map(|key| fs::read_to_string(format!("/proc/sys/{key}")).unwrap().trim().to_owned()))
}

#[test]
fn forwarding_stays_for_another_pod_network() {
    let loopback = r#"{"cniVersion":"1.0.0","name":"lo","type":"loopback"}"#;
    // It may have called our network, or another one.
    let multus = r#"{"cniVersion":"1.0.0","name":"multus","type":"multus-shim"}"#;
    for (name, text, stays) in [
        ("10-flannel.conflist", FLANNEL, true),
        ("99-loopback.conf", loopback, false),
        ("00-multus.conf", multus, true),
    ] {
        let (node, host) = (Node::installed(), Host::new());
        host.inside(|| KEYS.map(|key| fs::write(format!("/proc/sys/{key}"), "0").unwrap()));
        host.populate(&node.path("lib"));
        assert_eq!(forwarding(&host), ["1", "1"]);
        fs::write(node.path("net.d").join(name), text).unwrap();
        let (code, printed) = node.uninstall(&host, &["--force"]);
        assert_eq!(code, 0, "{printed}");
        let expected = if stays { "1" } else { "0" };
        assert_eq!(forwarding(&host), [expected, expected], "{printed}");
        let left = format!("left: setting net/ipv4/ip_forward: {name} is of another");
        assert_eq!(printed.contains(&left), stays, "{printed}");
        assert_eq!(
            printed.contains("note: no usable CNI configuration is left"),
            name != "10-flannel.conflist",
            "{printed}"
        );
    }
}
