//! Programs on the node that mean well: udev, which gives links addresses by a policy, and network managers, which remove
//! rules and routes that they do not know.

use std::process::Command;

use serde_json::Value;

use crate::node::{Families, Node, Pod, assert_success, error_of};

/// A running pod, what its ADD answered, and what the host was like before.
struct Scene {
    node: Node,
    pod: Pod,
    answer: Value,
    before: Vec<String>,
}

impl Scene {
    fn new() -> Self {
        let node = Node::new(Families::Dual);
        let (before, pod) = (node.snapshot(), Pod::new("a"));
        let answer = node.add(&pod);
        Self { node, pod, answer, before }
    }

    fn host_end(&self) -> &str {
        self.answer["interfaces"][0]["name"].as_str().unwrap()
    }

    /// Runs a line as an operator would type it.
    fn on_host(&self, line: &str) -> String {
        let run = || Command::new("sh").args(["-ec", line]).output().unwrap();
        let output = self.node.host.run(run).unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn assert_check_names(&self, what: &str) {
        let mut conf = self.node.conf("1.0.0");
        conf["prevResult"] = self.answer.clone();
        let (code, text) = error_of(&self.node.cni("CHECK", &self.pod, &conf));
        assert!(code == 107 && text.contains(what), "{what}: {text}");
    }

    fn assert_del_leaves_nothing(&self) {
        assert_success(&self.node.cni("DEL", &self.pod, &self.node.conf("1.0.0")));
        assert_eq!(self.node.snapshot(), self.before);
        assert!(self.node.allocations().allocations.is_empty());
    }
}

#[test]
fn host_end_address_counts_as_set_so_udev_keeps_it() {
    let scene = Scene::new();
    // Of a private mount of /sys, which shows the links of the namespace it was mounted in. 3 is NET_ADDR_SET: systemd-udevd's
    // MACAddressPolicy applies to addresses that the kernel made up (1, NET_ADDR_RANDOM) only.
    let look = format!("mount -t sysfs sysfs /sys && cat /sys/class/net/{}/addr_assign_type", scene.host_end());
    assert_eq!(scene.on_host(&format!("unshare --mount sh -ec '{look}'")).trim(), "3");
}

/// A network manager does these; that CHECK names each is in `check.rs`.
#[test]
fn del_succeeds_after_changes_of_other_programs() {
    let scene = Scene::new();
    scene.on_host(&format!("ip link set {} address 02:00:00:00:be:ef", scene.host_end()));
    for family in ["-4", "-6"] {
        // As systemd-networkd does at its start with ManageForeignRoutingPolicyRules=yes.
        scene.on_host(&format!("ip {family} rule del pref 1536; ip {family} route flush table 999"));
    }
    scene.assert_del_leaves_nothing();
}

#[test]
fn del_succeeds_when_only_the_record_is_left() {
    let scene = Scene::new();
    let link = scene.host_end();
    scene.on_host(&format!(
        "ip rule del pref 1536; ip -6 rule del pref 1536; ip link del {link}
         ip neigh del proxy 10.0.0.8 dev ens5; ip neigh del proxy 2001:db8::8 dev ens5"
    ));
    scene.assert_check_names("link");
    scene.assert_del_leaves_nothing();
}

#[test]
fn del_succeeds_when_vnic_link_is_gone() {
    let scene = Scene::new();
    scene.on_host("ip link del ens5");
    assert_success(&scene.node.cni("DEL", &scene.pod, &scene.node.conf("1.0.0")));
    let left: Vec<_> = scene.node.snapshot().into_iter().filter(|line| !scene.before.contains(line)).collect();
    assert!(left.is_empty(), "{left:#?}");
    assert!(scene.node.allocations().allocations.is_empty());
}
