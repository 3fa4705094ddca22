//! A node in namespaces: a host with two VNIC links whose far ends are routers, and pods. The real binary runs in it.

use std::path::PathBuf;
use std::process::{Child, Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use host_harness::{Families, PATIENCE, VnicHost, assert_success, error_of, json_of, name, reaches, sh, vnic_pool};
use ipam::{Allocation, Allocations, BootId, BootTime, Pools, Store, VnicPool};
use netlink::{LinkChange, Netns, Route, RouteFilter, Rule, Socket};
use serde_json::{Value, json};
use telemetry::VerbRecord;
use vcn::{Family, RulePriorities, TableId};

/// The program under test.
pub(crate) const PLUGIN: &str = env!("CARGO_BIN_EXE_vcn-native");

pub(crate) struct Node {
    pub(crate) host: Netns,
    pub(crate) routers: Vec<Netns>,
    pub(crate) state: tempfile::TempDir,
    /// How many runs had to be repeated because others held a lock for too long.
    pub(crate) repeated: AtomicUsize,
}

pub(crate) struct Pod {
    pub(crate) netns: Netns,
    pub(crate) id: String,
}

/// Everything an ADD could change on the host, in a comparable form.
pub(crate) type Snapshot = Vec<String>;

/// Who made a route, as the kernel calls itself.
const KERNEL: u8 = 2;

impl Node {
    pub(crate) fn new(families: Families) -> Self {
        let VnicHost { host, routers } = VnicHost::new();
        let node = Self { host, routers, state: tempfile::tempdir().unwrap(), repeated: AtomicUsize::new(0) };
        let vnic = |number| vnic_pool(number, families, ["10.0.N.8/29", "2001:db8:N::8/125"]);
        node.write_pools(vec![vnic(0), vnic(1)]);
        node
    }

    /// A node with one VNIC for pods, which has these IPv4 addresses for them.
    pub(crate) fn with_addresses(addresses: &[&str]) -> Self {
        let node = Self::new(Families::V4);
        node.change_pools(|vnics| {
            vnics.truncate(1);
            let pool = vnics[0].families.ipv4.as_mut().unwrap();
            pool.addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        });
        node
    }

    /// Gives each VNIC addresses for hundreds of pods, and these ranges of IPv4 in addition, in the subnets of their routers
    /// (`N` is the VNIC's number).
    pub(crate) fn enlarge(&self, more: &[&str]) {
        self.change_pools(|vnics| {
            for (number, vnic) in vnics.iter_mut().enumerate() {
                let number = number.to_string();
                let ranges = ["10.0.N.8/29", "10.0.N.16/28", "10.0.N.32/27", "10.0.N.64/26"].iter().chain(more);
                let ranges = ranges.map(|range| range.replace('N', &number).parse().unwrap());
                vnic.families.ipv4.as_mut().unwrap().addresses = ranges.collect();
                let ipv6 = format!("2001:db8:{number}::/112").parse().unwrap();
                vnic.families.ipv6.as_mut().unwrap().addresses = vec![ipv6];
            }
        });
    }

    pub(crate) fn change_pools(&self, change: impl FnOnce(&mut Vec<VnicPool>)) {
        let mut vnics = self.pools().vnics;
        change(&mut vnics);
        self.write_pools(vnics);
    }

    pub(crate) fn write_pools(&self, vnics: Vec<VnicPool>) {
        Pools::new(BootId::current().unwrap(), vnics, None).write(self.state.path()).unwrap();
    }

    pub(crate) fn pools(&self) -> Pools {
        Pools::read(self.state.path(), &BootId::current().unwrap()).unwrap()
    }

    pub(crate) fn in_host<T: Send>(&self, act: impl FnOnce(&mut Socket) -> T + Send) -> T {
        self.host.run(|| act(&mut Socket::open().unwrap())).unwrap()
    }

    /// Runs a script on the host, as an operator would.
    pub(crate) fn sh(&self, script: &str) -> String {
        sh(&self.host, script)
    }

    /// A file of the state directory.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.state.path().join(name)
    }

    pub(crate) fn store(&self) -> Store {
        Store::new(self.state.path(), BootId::current().unwrap())
    }

    /// Changes all that is on record.
    pub(crate) fn change_held(&self, change: impl FnMut(&mut Allocation)) {
        let changed = self.store().update(|held| {
            held.allocations.iter_mut().for_each(change);
            Ok::<_, ipam::Error>(())
        });
        changed.unwrap();
    }

    /// As if every ADD had been long ago, so that GC may end it.
    pub(crate) fn age(&self) {
        self.change_held(|allocation| allocation.since = BootTime(0));
    }

    pub(crate) fn conf(&self, version: &str) -> Value {
        json!({"cniVersion": version, "name": "vcn-native", "type": "vcn-native"})
    }

    /// ADD, and the configuration of the pod's CHECK.
    pub(crate) fn add_to_check(&self, pod: &Pod) -> Value {
        let mut conf = self.conf("1.0.0");
        conf["prevResult"] = self.add(pod);
        conf
    }

    /// The code and text of a call that fails.
    pub(crate) fn refusal(&self, verb: &str, pod: &Pod) -> (u64, String) {
        error_of(&self.cni(verb, pod, &self.conf("1.0.0")))
    }

    /// GC by a runtime that knows the pods of these identifiers.
    pub(crate) fn gc(&self, valid: &[&str]) -> Output {
        self.gc_by("cni.dev/valid-attachments", valid)
    }

    /// The same with the list under this key.
    pub(crate) fn gc_by(&self, key: &str, valid: &[&str]) -> Output {
        let mut conf = self.conf("1.1.0");
        conf[key] = valid.iter().map(|id| json!({"containerID": id, "ifname": "eth0"})).collect();
        self.call(&[("CNI_COMMAND", "GC")], &conf)
    }

    pub(crate) fn add(&self, pod: &Pod) -> Value {
        json_of(&self.patiently("ADD", pod, &self.conf("1.0.0")))
    }

    pub(crate) fn del(&self, pod: &Pod) {
        assert_success(&self.patiently("DEL", pod, &self.conf("1.0.0")));
    }

    /// Runs the plugin as a runtime does that tries again what waited too long for other runs: they may stand still.
    pub(crate) fn patiently(&self, verb: &str, pod: &Pod, conf: &Value) -> Output {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let begun = Instant::now();
            let output = self.cni(verb, pod, conf);
            if output.status.success() || !waited(&output) || Instant::now() > give_up {
                return output;
            }
            assert!(begun.elapsed() >= LOCK_PATIENCE, "{verb} waited for {:?} only", begun.elapsed());
            self.repeated.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Runs the plugin as a runtime does.
    pub(crate) fn cni(&self, verb: &str, pod: &Pod, conf: &Value) -> Output {
        self.start(verb, pod, conf).wait_with_output().unwrap()
    }

    /// Starts the plugin as a runtime does.
    pub(crate) fn start(&self, verb: &str, pod: &Pod, conf: &Value) -> Child {
        self.start_by(Command::new(PLUGIN), verb, pod, conf)
    }

    /// Starts the plugin by a program that starts it.
    pub(crate) fn start_by(&self, program: Command, verb: &str, pod: &Pod, conf: &Value) -> Child {
        let netns = pod.path();
        let netns = netns.to_str().unwrap();
        self.spawn(program, &[("CNI_COMMAND", verb), ("CNI_CONTAINERID", &pod.id), ("CNI_NETNS", netns)], conf)
    }

    pub(crate) fn call(&self, environment: &[(&str, &str)], conf: &Value) -> Output {
        self.spawn(Command::new(PLUGIN), environment, conf).wait_with_output().unwrap()
    }

    pub(crate) fn spawn(&self, program: Command, environment: &[(&str, &str)], conf: &Value) -> Child {
        let state = self.state.path().to_str().unwrap();
        let usual = [("CNI_IFNAME", "eth0"), ("CNI_PATH", "/nonexistent"), (attachment::STATE_DIR_VARIABLE, state)];
        host_harness::spawn(&self.host, program, usual.into_iter().chain(environment.iter().copied()), conf)
    }

    /// Links, addresses, routes of all tables, rules and neighbours of the host, without what changes by itself.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.in_host(|socket| {
            let mut lines = Vec::new();
            lines.extend(socket.links().unwrap().iter().map(|l| format!("link {} {:?} {:?}", l.name, l.mac, l.alias)));
            lines.extend(socket.addresses(None).unwrap().iter().map(|a| format!("addr {} {}", a.index, a.address)));
            for family in Family::ALL {
                let routes = socket.routes(&RouteFilter::all(family)).unwrap();
                lines.extend(routes.iter().filter(|r| !is_the_kernels(r)).map(|r| format!("route {r:?}")));
                lines.extend(socket.rules(family).unwrap().iter().map(|r| format!("rule {r:?}")));
            }
            let proxies = netlink::NeighbourFilter { family: None, index: None, proxy: true };
            lines.extend(socket.neighbours(&proxies).unwrap().iter().map(|n| format!("proxy {n:?}")));
            // The kernel gives each link an address of its own, when it has checked that for duplicates.
            lines.retain(|line| !line.contains("fe80:") || is_of_fe80_1(line));
            lines.sort();
            lines
        })
    }

    pub(crate) fn pod_rules(&self, family: Family) -> Vec<Rule> {
        let rules = self.in_host(|socket| socket.rules(family).unwrap());
        rules.into_iter().filter(|rule| rule.priority == RulePriorities::FROM_POD).collect()
    }

    pub(crate) fn allocations(&self) -> Allocations {
        self.store().read().unwrap()
    }

    /// How many attachments are on record.
    pub(crate) fn held(&self) -> usize {
        self.allocations().allocations.len()
    }

    /// The run record of the last verb of a kind.
    pub(crate) fn last_run(&self, verb: &str) -> VerbRecord {
        let records = telemetry::read_log(self.state.path()).unwrap();
        records.into_iter().rfind(|record| record.verb == verb).unwrap()
    }
}

/// Routes of an IPv6 address and of multicast, which the kernel makes some time after the address, or after the link was raised.
fn is_the_kernels(route: &Route) -> bool {
    route.destination.is_ipv6() && route.protocol == KERNEL && route.table == TableId::LOCAL
}

/// Whether a line is about `fe80::1`, and not about an address that begins so, as a link's own may.
pub(crate) fn is_of_fe80_1(line: &str) -> bool {
    line.split("fe80::1").skip(1).any(|rest| !rest.starts_with(|next: char| next.is_ascii_hexdigit() || next == ':'))
}

impl Pod {
    pub(crate) fn new(id: &str) -> Self {
        let netns = Netns::create().unwrap();
        netns.run(|| Socket::open().unwrap().change_link_named(&name("lo"), &[LinkChange::Up]).unwrap()).unwrap();
        Self { netns, id: id.to_owned() }
    }

    /// Where a runtime finds its namespace.
    pub(crate) fn path(&self) -> PathBuf {
        host_harness::path_of(&self.netns)
    }

    /// Whether `target` comes to answer this pod.
    pub(crate) fn reaches(&self, target: &str) -> bool {
        reaches(&self.netns, target)
    }

    /// Whether `target` answers one echo request of this pod within a second.
    pub(crate) fn pings(&self, target: &str) -> bool {
        host_harness::pings(&self.netns, target)
    }
}

/// How long a run waits for a lock that others hold (`docs/errors.md`, 11).
const LOCK_PATIENCE: Duration = Duration::from_secs(30);

/// Whether a failed run gave up because others held a lock.
pub(crate) fn waited(output: &Output) -> bool {
    let error: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (&error["code"], &error["details"]) == (&json!(11), &json!("timed out"))
}

/// The host's end that a result names.
pub(crate) fn host_link(result: &Value) -> String {
    result["interfaces"][0]["name"].as_str().unwrap().to_owned()
}

/// The first address that a result gives.
pub(crate) fn address(result: &Value) -> &str {
    result["ips"][0]["address"].as_str().unwrap()
}
