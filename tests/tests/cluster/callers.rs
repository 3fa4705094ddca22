//! cnitool, the CNI project's own caller with its libcni, runs our plugins in chains with reference plugins: the whole list, its
//! cache, capabilities, CHECK, STATUS and GC.

use std::fs;
use std::net::IpAddr;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::process::{Command, Output};

use ipam::{BootId, FamilyPool, Pools, Store, VnicPool};
use netlink::Netns;
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::built::bin_dir;
use vcn::{Mtu, PerFamily, Purpose, TableId};

use crate::manifests::tools;

/// Of Debian's package containernetworking-plugins.
const REFERENCE: &str = "/usr/lib/cni";

/// A host with one VNIC, whose router is a namespace too, and a pod.
struct World {
    host: Netns,
    router: Netns,
    pod: Netns,
    /// State of the plugins, configurations, and what libcni caches.
    folder: TempDir,
}

fn path(netns: &Netns) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), netns.as_fd().as_raw_fd())
}

fn shell(netns: &Netns, script: &str) -> Output {
    netns.run(|| Command::new("sh").args(["-ec", script]).output().unwrap()).unwrap()
}

fn text(output: Output) -> String {
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

impl World {
    fn new(list: &Value) -> Self {
        let [host, router, pod] = std::array::from_fn(|_| Netns::create().unwrap());
        let world = Self { host, router, pod, folder: tempfile::tempdir().unwrap() };
        text(shell(
            &world.host,
            &format!(
                "ip link set lo up; echo 1 >/proc/sys/net/ipv4/ip_forward; ip rule add pref 512 lookup 999 proto 157
                 ip link add ens5 type veth peer name port; ip link set port netns {}; ip link set ens5 up
                 ip addr add 10.0.0.2/32 dev ens5; ip route add 10.0.0.1 dev ens5; ip route add default via 10.0.0.1 dev ens5
                 ip route add 10.0.0.1 dev ens5 table 1001; ip route add default via 10.0.0.1 dev ens5 table 1001",
                path(&world.router)
            ),
        ));
        text(shell(&world.router, "ip link set lo up; ip link set port up; ip addr add 10.0.0.1/24 dev port"));
        text(shell(&world.pod, "ip link set lo up"));
        for folder in ["state", "net.d", "lib"] {
            fs::create_dir(world.folder.path().join(folder)).unwrap();
        }
        world.configure(list);
        Pools::new(BootId::current().unwrap(), vec![pool()], None).write(&world.folder.path().join("state")).unwrap();
        world
    }

    fn configure(&self, list: &Value) {
        fs::write(self.folder.path().join("net.d/10-test.conflist"), list.to_string()).unwrap();
    }

    /// cnitool keeps its cache in /var/lib/cni, and no flag moves it: it gets a /var/lib of its own.
    fn cnitool(&self, verb: &str) -> Output {
        let (own, pod) = (self.folder.path().display(), path(&self.pod));
        let tool = tools().join("cnitool").display().to_string();
        let command = format!("mount --bind {own}/lib /var/lib; exec {tool} {verb} test {pod}");
        let run = || {
            Command::new("unshare")
                .args(["--mount", "sh", "-ec", &command])
                .env("NETCONFPATH", self.folder.path().join("net.d"))
                .env("CNI_PATH", format!("{}:{REFERENCE}", bin_dir().display()))
                .env("CAP_ARGS", r#"{"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}"#)
                .env(attachment::STATE_DIR_VARIABLE, self.folder.path().join("state"))
                .output()
                .unwrap()
        };
        self.host.run(run).unwrap()
    }

    /// Links, routes, rules and NAT of the host.
    fn traces(&self) -> String {
        text(shell(
            &self.host,
            "ip -o link | sed 's/ state .*//'; ip rule; ip -4 route show table all; nft list ruleset | grep 8080 || true",
        ))
    }

    fn held(&self) -> usize {
        let store = Store::new(&self.folder.path().join("state"), BootId::current().unwrap());
        store.read().unwrap().allocations.len()
    }

    fn pod_reaches_router(&self) -> bool {
        shell(&self.pod, "ping -c 1 -W 5 10.0.0.1").status.success()
    }
}

fn pool() -> VnicPool {
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let addresses = FamilyPool {
        router: ip("10.0.0.1"),
        reserved: vec![ip("10.0.0.2")],
        addresses: vec!["10.0.0.8/29".parse().unwrap()],
    };
    VnicPool {
        vnic_id: "ocid1.vnic.oc1.iad.v0".parse().unwrap(),
        link: "ens5".parse().unwrap(),
        mac: "02:00:17:00:00:01".parse().unwrap(),
        link_has_mac: false,
        mtu: Mtu::VCN,
        table: TableId(1001),
        purpose: Purpose::Pods,
        attach: None,
        families: PerFamily { ipv4: Some(addresses), ipv6: None },
    }
}

fn list(version: &str, plugins: &[Value]) -> Value {
    json!({ "cniVersion": version, "name": "test", "plugins": plugins })
}

#[test]
fn cnitool_runs_a_chain_with_reference_plugins() {
    let rate = 80_000_000;
    let plugins = [
        json!({ "type": "vcn-native" }),
        json!({ "type": "portmap", "capabilities": { "portMappings": true }, "snat": true }),
        json!({ "type": "bandwidth", "ingressRate": rate, "ingressBurst": rate, "egressRate": rate, "egressBurst": rate }),
        json!({ "type": "tuning", "sysctl": { "net.core.somaxconn": "500" } }),
        json!({ "type": "vnic-attach" }),
    ];
    // The newest that Debian's plugins know.
    let world = World::new(&list("1.0.0", &plugins));
    let before = world.traces();
    let result: Value = serde_json::from_str(&text(world.cnitool("add"))).unwrap();
    assert_eq!(result["cniVersion"], "1.0.0");
    assert!(result["ips"][0]["address"].as_str().unwrap().starts_with("10.0.0."), "{result}");
    assert!(world.pod_reaches_router());
    assert!(text(shell(&world.pod, "cat /proc/sys/net/core/somaxconn")).starts_with("500"));
    assert!(world.traces().contains("8080") || text(shell(&world.host, "iptables-save -t nat")).contains("8080"));
    // portmap 1.1.1 expects the rules of one family among the other's, too, so its CHECK never passes.
    let checked: Vec<Value> = plugins.iter().filter(|plugin| plugin["type"] != "portmap").cloned().collect();
    world.configure(&list("1.0.0", &checked));
    text(world.cnitool("check"));
    world.configure(&list("1.0.0", &plugins));
    assert_eq!(world.held(), 1);
    for _ in 0..2 {
        text(world.cnitool("del"));
    }
    assert_eq!(world.held(), 0);
    assert_eq!(world.traces(), before);
}

#[test]
fn cnitool_gets_status_and_no_gc_without_a_list() {
    let world = World::new(&list("1.1.0", &[json!({ "type": "vcn-native" }), json!({ "type": "vnic-attach" })]));
    text(world.cnitool("status"));
    text(world.cnitool("add"));
    text(world.cnitool("check"));
    // libcni first deletes what it cached. Then it sends no list of valid attachments, which must not mean that none is valid.
    let gc = world.cnitool("gc");
    assert!(String::from_utf8_lossy(&gc.stderr).contains("refused, because it would remove every attachment"));
    assert_eq!(world.held(), 0);
    fs::remove_file(world.folder.path().join("state/pools.json")).unwrap();
    let refused = world.cnitool("status");
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("address pools"), "{said}");
    let failed = world.cnitool("add");
    assert!(!failed.status.success() && String::from_utf8_lossy(&failed.stderr).contains("failed (add)"));
}
