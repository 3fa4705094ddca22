//! The reference plugins chained behind our plugin: portmap, bandwidth, tuning. What they add works, CHECK of the whole chain
//! passes, and a DEL of all leaves nothing.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::node::{Families, Node, Pod};
use serde_json::{Value, json};

/// From packages.txt: containernetworking-plugins.
const REFERENCE: &str = "/usr/lib/cni";
const DEFAULT_ROUTE: [&str; 8] = ["route", "add", "default", "via", "10.0.1.1", "dev", "ens6", "onlink"];

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
            "vcn-native" => env!("CARGO_BIN_EXE_vcn-native").to_owned(),
            other => format!("{REFERENCE}/{other}"),
        };
        let mut conf = plugin.clone();
        conf["cniVersion"] = self.version.into();
        conf["name"] = "vcn-native".into();
        if !previous.is_null() {
            conf["prevResult"] = previous.clone();
        }
        let run = || {
            let mut child = Command::new(program)
                .env("CNI_COMMAND", verb)
                .env("CNI_CONTAINERID", &self.pod.id)
                .env("CNI_IFNAME", "eth0")
                .env("CNI_PATH", REFERENCE)
                .env(attachment::STATE_DIR_VARIABLE, self.node.state.path())
                .env("CNI_NETNS", format!("/proc/{}/fd/{}", std::process::id(), self.pod.netns.as_fd().as_raw_fd()))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            child.stdin.take().unwrap().write_all(conf.to_string().as_bytes()).unwrap();
            child.wait_with_output().unwrap()
        };
        let output = self.node.host.run(run).unwrap();
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
        node.host.run(|| Command::new("ip").args(DEFAULT_ROUTE).status().unwrap()).unwrap();
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
        assert!(node.allocations().allocations.is_empty());
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
