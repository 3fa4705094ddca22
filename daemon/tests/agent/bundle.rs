//! `bundle`: all that is requested, nothing secret, with the agent, without it and while it hangs.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Instant;

use nix::sys::signal::Signal;
use serde_json::Value;
use telemetry::{Delivery, Sink, VerbRecord};

use crate::follow_up::dual_stack_node;
use crate::node::{Node, wait_for};
use crate::pod::Pod;
use crate::running::{SECOND, in_time};

/// What no bundle may hold, wherever it was.
const SECRETS: [&str; 5] =
    ["hunter2", "s3cr3t-t0ken", "MIIsecretkey", "eyJhbGciOiJSUzI1NiJ9.eyJzdWIi.c2ln", "kubeconfigtoken"];

type Entries = BTreeMap<String, String>;

fn entries(tar: &[u8]) -> Entries {
    let mut archive = tar::Archive::new(tar);
    let read = |mut entry: tar::Entry<'_, &[u8]>| {
        assert_eq!(entry.header().mode().unwrap(), 0o600);
        let name = entry.path().unwrap().display().to_string();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        (name.strip_prefix("bundle/").unwrap().to_owned(), text)
    };
    archive.entries().unwrap().map(|entry| read(entry.unwrap())).collect()
}

fn bundle(node: &Node) -> Entries {
    let output = node.output(&["bundle"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    entries(&output.stdout)
}

/// Puts secrets where operators and other programs leave them.
fn plant(node: &Node) {
    let foreign = r#"{"cniVersion":"0.3.1","name":"x","plugins":[{"type":"calico","k8s_auth_token":"s3cr3t-t0ken",
        "etcd_key":"-----BEGIN EC PRIVATE KEY-----\nMIIsecretkey\n-----END EC PRIVATE KEY-----"}]}"#;
    fs::write(node.path("net.d/99-calico.conflist"), foreign).unwrap();
    // No JSON, which the runtime refuses; and one that is JSON for the runtime alone.
    let half = r#"{"name":"x","plugins":[{"type":"calico","k8s_auth_token":"s3cr3t-t0ken",}]}"#;
    fs::write(node.path("net.d/98-half.conflist"), half).unwrap();
    let odd = r#"{"name":"x","note":"\ud800","plugins":[{"type":"calico","k8s_auth_token":"s3cr3t-t0ken"}]}"#;
    fs::write(node.path("net.d/97-odd.conflist"), odd).unwrap();
    fs::write(node.path("net.d/calico-kubeconfig"), "token: kubeconfigtoken\n").unwrap();
    fs::create_dir_all(node.path("net.d/multus.d")).unwrap();
    fs::write(node.path("net.d/multus.d/multus.kubeconfig"), "token: kubeconfigtoken\n").unwrap();
    let note = "proxy http://me:hunter2@10.0.0.1 and Bearer eyJhbGciOiJSUzI1NiJ9.eyJzdWIi.c2ln and password=hunter2\n";
    fs::write(node.path("lib/note.txt"), note).unwrap();
}

/// No secret, and of the files they are in all that may be had.
fn without_secrets(entries: &Entries) {
    for (name, text) in entries {
        for secret in SECRETS {
            assert!(!text.contains(secret), "{secret} is in {name}:\n{text}");
        }
    }
    let configurations = json(entries, "cni/configurations.json");
    let of = |file: &str| configurations.as_array().unwrap().iter().find(|it| it["file"] == file).unwrap().clone();
    let calico = serde_json::json!({
        "file": "99-calico.conflist", "name": "x", "cni_version": "0.3.1",
        "plugins": [{"type": "calico", "keys": ["type", "k8s_auth_token", "etcd_key"]}],
    });
    assert_eq!(of("99-calico.conflist"), calico);
    for broken in ["98-half.conflist", "97-odd.conflist"] {
        assert!(of(broken)["error"].as_str().unwrap().starts_with("not JSON: "), "{configurations}");
    }
}

fn json(entries: &Entries, name: &str) -> Value {
    serde_json::from_str(&entries[name]).unwrap()
}

#[test]
fn bundle_has_everything_and_no_secret() {
    let (node, agent) = dual_stack_node().with_agent(&[]);
    let pod = Pod::add(&node, "one");
    let run = VerbRecord {
        message: "no address is free".into(),
        code: 11,
        ..VerbRecord::begin("vcn-native", "0.1.0", "ADD")
    };
    assert_eq!(Sink::new(node.path("run")).send(&run), Delivery::Agent);
    wait_for("the run", || agent.events("cni.failed").len() == 1, || agent.log());
    plant(&node);
    wait_for("the conflist", || node.path("net.d").join(vcn::CONFLIST_FILE).exists(), || agent.log());
    let all = bundle(&node);
    let address = pod.addresses()[0].to_string();
    for (name, holds) in [
        ("README.txt", "The agent was running: agent/ has its answers."),
        ("agent/status.json", "\"running\":true"),
        ("agent/pools.json", "ocid1.vnic.oc1.iad.pods"),
        ("agent/attachments.json", address.as_str()),
        ("agent/plan.json", "\"changes\":[]"),
        ("agent/verbs.json", "no address is free"),
        ("agent/metrics.txt", "oke_node_agent_ready 1"),
        ("agent/health.json", "\"signal\":\"invalid_rules\""),
        ("agent/config.json", "RESYNC_SECONDS"),
        ("net/links.txt", "ens5: up mtu 9000"),
        ("net/links.txt", pod.host_link().as_str()),
        ("net/addresses.txt", "10.0.33.7/32 dev ens5"),
        ("net/rules.txt", "IPv4 pref 512 from all lookup 999 suppress_prefixlength 31 proto 157"),
        ("net/routes.txt", "via 10.0.10.1 dev ens3 table main"),
        ("net/routes.txt", "default via 10.0.33.1 dev ens5 table 1000"),
        ("net/routes.txt", "table local"),
        ("net/neighbours.txt", "proxy 10.0.33.32 dev ens5"),
        ("net/nft.txt", "inet vcn-native "),
        ("net/nft.txt", "arp vcn-native "),
        ("net/sysctls.txt", "net/ipv4/conf/ens5/rp_filter=2"),
        ("net/sysctls.txt", "net/ipv4/ip_forward=1"),
        ("proc/net/dev", "ens5:"),
        ("state/pools.json", "ocid1.vnic.oc1.iad.pods"),
        ("state/allocations.json", "bootId"),
        ("data/vnics-seen.json", "ocid1.vnic.oc1.iad.pods"),
        ("data/tables.json", "ocid1.vnic.oc1.iad.pods"),
        ("data/sysctls.json", "ip_forward"),
        ("cni/net.d.txt", "calico-kubeconfig"),
        ("cni/configurations.json", vcn::CONFLIST_FILE),
        ("cni/bin.txt", "vcn-native"),
        ("versions.txt", "oke-node-agent "),
        ("versions.txt", "kernel: Linux version"),
    ] {
        let text = all.get(name).unwrap_or_else(|| panic!("{name} is not in {:?}", all.keys()));
        assert!(text.contains(holds), "{holds} is not in {name}:\n{text}");
    }
    let hash = Command::new("sha256sum").arg(node.path("net.d").join(vcn::CONFLIST_FILE)).output().unwrap().stdout;
    let hash = String::from_utf8(hash).unwrap();
    assert!(all["cni/net.d.txt"].contains(hash.split(' ').next().unwrap()), "{}", all["cni/net.d.txt"]);
    assert_eq!(json(&all, "agent/attachments.json")[0]["state"], "running");
    without_secrets(&all);
    assert!(!all.keys().any(|name| name.contains("kubeconfig")), "{:?}", all.keys());
    assert!(all["README.txt"].ends_with("Missing:\n  nothing\n"), "{}", all["README.txt"]);
}

#[test]
fn bundle_without_agent_has_the_nodes_own_state() {
    let (node, agent) = dual_stack_node().with_agent(&[]);
    let _pod = Pod::add(&node, "one");
    agent.stop();
    plant(&node);
    let all = bundle(&node);
    let readme = &all["README.txt"];
    assert!(readme.contains("The agent was not running"), "{readme}");
    assert!(readme.contains("agent/status.json and later answers of the agent: the agent is not running"), "{readme}");
    for name in ["agent/config.json", "net/nft.txt", "state/pools.json"] {
        assert!(all.contains_key(name), "{name} is not in {:?}", all.keys());
    }
    without_secrets(&all);
}

#[test]
fn log_of_plugin_runs_is_whole() {
    let node = Node::new();
    node.metadata.set_status(400);
    fs::create_dir_all(node.path("run")).unwrap();
    let line = format!("{}\n", serde_json::to_string(&VerbRecord::begin("vcn-native", "0.1.0", "ADD")).unwrap());
    let log = line.repeat(usize::try_from(telemetry::LOG_LIMIT).unwrap() / line.len() + 1);
    for name in ["verbs.log", "verbs.log.1"] {
        fs::write(node.path("run").join(name), &log).unwrap();
    }
    let all = bundle(&node);
    assert_eq!((&all["state/verbs.log"], &all["state/verbs.log.1"]), (&log, &log), "{}", all["README.txt"]);
}

#[test]
fn hanging_agent_gets_one_request_and_is_reported_in_time() {
    let (node, agent) = dual_stack_node().with_agent(&[]);
    agent.signal(Signal::SIGSTOP);
    let timed = |seconds: u32, what: &str, call: &(dyn Fn() + Sync)| {
        in_time(seconds * SECOND, what, || {
            let begun = Instant::now();
            call();
            begun.elapsed()
        });
    };
    std::thread::scope(|scope| {
        // It waits for 10 s, and for nothing else.
        scope.spawn(|| {
            timed(30, "the answer", &|| {
                let output = node.output(&["why-not-ready"]);
                let said = String::from_utf8(output.stderr).unwrap();
                assert!(said.contains("no answer within 10 s: it is stopped, starved or hangs"), "{said}");
                assert_eq!(output.status.code(), Some(1));
            });
        });
        timed(50, "a bundle", &|| {
            let all = bundle(&node);
            let readme = &all["README.txt"];
            assert!(readme.contains("DID NOT ANSWER") && readme.contains("status.json and later"), "{readme}");
            assert!(all["net/routes.txt"].contains("table 1000") && all.contains_key("state/pools.json"));
        });
    });
}

#[test]
fn bundle_file_is_private_and_complete_or_absent() {
    let node = dual_stack_node();
    // Of what the program sees, only the volumes can be written.
    let write = |path: &str| {
        let output = node.output_of(|command| command.args(["bundle", "--state-dir", "/nowhere", "--file", path]));
        output.status.code()
    };
    let path = node.path("run/node.tar");
    assert_eq!(write("/run/vcn-native/node.tar"), Some(0));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(entries(&fs::read(&path).unwrap()).contains_key("README.txt"));
    for elsewhere in ["/run/vcn-native/nowhere/node.tar", "/node.tar"] {
        assert_eq!(write(elsewhere), Some(1), "{elsewhere}");
    }
    let left: Vec<_> = fs::read_dir(node.path("run")).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left, ["node.tar"]);
}
