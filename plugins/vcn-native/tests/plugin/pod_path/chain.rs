//! The reference plugins chained behind our plugin: portmap, bandwidth, tuning. What they add works, CHECK of the whole chain
//! passes, and a DEL of all leaves nothing.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use crate::node::{Node, PLUGIN, Pod};
use host_harness::Families;
use serde_json::{Value, json};

/// From packages.txt: containernetworking-plugins.
const REFERENCE: &str = "/usr/lib/cni";

/// What a runtime does with a list of plugins.
struct Chain<'a> {
    node: &'a Node,
    pod: &'a Pod,
    version: &'static str,
    plugins: Vec<Value>,
}

impl Chain<'_> {
    fn add(&self) -> Value {
        let mut result = Value::Null;
        for plugin in &self.plugins {
            result = serde_json::from_str(&self.call("ADD", plugin, &result)).unwrap();
        }
        result
    }

    /// portmap is left out: 1.1.1 searches the rules of one family among the other's, too, and never passes.
    fn check(&self, result: &Value) {
        let asked = self.plugins.iter().filter(|plugin| plugin["type"] != "portmap");
        asked.for_each(|plugin| drop(self.call("CHECK", plugin, result)));
    }

    fn del(&self, result: &Value) {
        self.plugins.iter().rev().for_each(|plugin| drop(self.call("DEL", plugin, result)));
    }

    fn call(&self, verb: &str, plugin: &Value, previous: &Value) -> String {
        let kind = plugin["type"].as_str().unwrap();
        let program = match kind {
            "vcn-native" => PLUGIN.to_owned(),
            other => format!("{REFERENCE}/{other}"),
        };
        let mut conf = plugin.clone();
        conf["cniVersion"] = self.version.into();
        conf["name"] = "vcn-native".into();
        if !previous.is_null() {
            conf["prevResult"] = previous.clone();
        }
        let netns = self.pod.path();
        let variables = [
            ("CNI_COMMAND", verb),
            ("CNI_CONTAINERID", &self.pod.id),
            ("CNI_NETNS", netns.to_str().unwrap()),
            ("CNI_PATH", REFERENCE),
            // portmap and tuning start others.
            ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
        ];
        let output = self.node.spawn(Command::new(program), &variables, &conf).wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{kind} {verb}: {text}");
        text
    }
}

fn chain<'a>(node: &'a Node, pod: &'a Pod, version: &'static str, others: Vec<Value>) -> Chain<'a> {
    let ours = json!({"type": "vcn-native", "mtu": 1400});
    Chain { node, pod, version, plugins: [vec![ours], others].concat() }
}

fn portmap() -> Value {
    json!({
        "type": "portmap", "capabilities": {"portMappings": true}, "snat": true,
        "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}
    })
}

fn bandwidth() -> Value {
    json!({"type": "bandwidth", "ingressRate": 80_000_000, "ingressBurst": 8_000_000, "egressRate": 80_000_000,
           "egressBurst": 8_000_000})
}

fn tuning() -> Value {
    json!({"type": "tuning", "sysctl": {"net.core.somaxconn": "500"}, "mac": "02:00:00:00:00:99", "mtu": 1300, "promisc": true})
}

/// Asks the pod's web server by the address and port of a node.
fn served(node: &Node, pod: &Pod, target: &str) -> bool {
    let listener = pod.netns.run(|| TcpListener::bind("[::]:80").unwrap()).unwrap();
    let connect = || TcpStream::connect_timeout(&target.parse().unwrap(), Duration::from_secs(30));
    let Ok(mut connection) = node.routers[0].run(connect).unwrap() else { return false };
    // It is in the listener's queue by now.
    listener.accept().unwrap().0.write_all(b"here").unwrap();
    let mut answer = [0; 4];
    connection.read_exact(&mut answer).is_ok() && answer == *b"here"
}

#[test]
fn chain_of_three_plugins_works_and_del_removes_everything() {
    for version in ["0.4.0", "1.0.0"] {
        let (node, pod) = (Node::new(Families::Dual), Pod::new("a"));
        // A host without default route believes no client.
        node.sh("ip route add default via 10.0.1.1 dev ens6 onlink");
        let before = node.snapshot();
        let chain = chain(&node, &pod, version, vec![portmap(), bandwidth(), tuning()]);
        let result = chain.add();
        chain.check(&result);
        assert!(served(&node, &pod, "10.0.0.2:8080"), "hostPort, {version}");
        assert!(pod.reaches("10.0.0.1") && pod.reaches("2001:db8::1"), "{version}");
        assert_eq!(result["interfaces"][1]["mac"], "02:00:00:00:00:99", "tuning changed the pod's link");
        chain.del(&result);
        chain.del(&Value::Null);
        assert_eq!(node.snapshot(), before, "{version}");
        assert_eq!(node.held(), 0);
    }
}

#[test]
fn check_accepts_each_chained_plugin_alone() {
    for other in [portmap(), bandwidth(), tuning()] {
        let (node, pod) = (Node::new(Families::Dual), Pod::new("a"));
        let chain = chain(&node, &pod, "1.0.0", vec![other]);
        let result = chain.add();
        chain.check(&result);
        assert!(pod.reaches("10.0.0.1"), "{}", chain.plugins[1]);
        chain.del(&result);
    }
}
