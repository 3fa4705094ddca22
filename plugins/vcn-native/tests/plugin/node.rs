//! A node in namespaces: a host with two VNIC links whose far ends are routers, and pods. The real binary runs in it.

use std::io::Write;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ipam::{Allocation, Allocations, BootId, BootTime, FamilyPool, Pools, Store, VnicPool};
use netlink::{Address, LinkChange, LinkKind, Netns, NewLink, Peer, Route, RouteFilter, Rule, Socket, Sysctls};
use serde_json::{Value, json};
use telemetry::VerbRecord;
use vcn::{Family, IfName, Mtu, PODS_TABLE, PROTOCOL, PerFamily, Purpose, RulePriorities, TableId};

/// The program under test.
pub(crate) const PLUGIN: &str = env!("CARGO_BIN_EXE_vcn-native");

/// Which families the node's pools offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Families {
    V4,
    V6,
    Dual,
}

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
        let node = Self {
            host: Netns::create().unwrap(),
            routers: (0..2).map(|_| Netns::create().unwrap()).collect(),
            state: tempfile::tempdir().unwrap(),
            repeated: AtomicUsize::new(0),
        };
        let vnics = (0..2).map(|number| node.vnic(number, families)).collect();
        node.in_host(|socket| {
            let lo = socket.index_of(&name("lo")).unwrap();
            socket.change_link(lo, &[LinkChange::Up]).unwrap();
            for family in Family::ALL {
                socket.add_rule(&Rule::new(family, RulePriorities::TO_PODS, PODS_TABLE, PROTOCOL)).unwrap();
            }
            Sysctls::new("/proc/sys".as_ref()).write(&["net", "ipv4", "ip_forward"], "1").unwrap();
            Sysctls::new("/proc/sys".as_ref()).write(&["net", "ipv6", "conf", "all", "forwarding"], "1").unwrap();
        });
        node.write_pools(vnics);
        assert!(
            within(PATIENCE, || node.hears_its_addresses()),
            "the kernel never made the routes of the node's addresses"
        );
        node
    }

    /// The kernel makes the local routes of IPv6 addresses a moment after them.
    fn hears_its_addresses(&self) -> bool {
        let routes = self.in_host(|socket| socket.routes(&RouteFilter::all(Family::Ipv6)).unwrap());
        let own = ["2001:db8::2", "2001:db8:1::2"].map(ip);
        own.iter().all(|own| routes.iter().any(|it| it.destination.ip() == *own && it.table == TableId(255)))
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

    /// VNIC `number`: ens5 or ens6, with an address of its own, a table, and a router that answers ARP, NDP and pings.
    fn vnic(&self, number: u8, families: Families) -> VnicPool {
        let link = name(&format!("ens{}", 5 + number));
        let table = TableId(1001 + u32::from(number));
        let router = &self.routers[usize::from(number)];
        let (router4, router6) = (ip(&format!("10.0.{number}.1")), ip(&format!("2001:db8:{number}::1")));
        self.in_host(|socket| {
            let peer = Peer { name: name("port"), mac: None, mtu: Some(Mtu::VCN), netns: Some(router.as_fd()) };
            let mut veth = NewLink::new(link.clone(), LinkKind::Veth(peer));
            veth.mtu = Some(Mtu::VCN);
            socket.add_link(&veth).unwrap();
            let index = socket.index_of(&link).unwrap();
            no_detection(&link);
            socket.change_link(index, &[LinkChange::Up]).unwrap();
            for (own, via) in
                [(ip(&format!("10.0.{number}.2")), router4), (ip(&format!("2001:db8:{number}::2")), router6)]
            {
                let mut address = Address::new(index, own.into());
                address.nodad = true;
                socket.add_address(&address).unwrap();
                let mut on_link = Route::new(via.into(), index, table, 4);
                on_link.scope_link = via.is_ipv4();
                socket.add_route(&on_link).unwrap();
                let mut default = Route::new(datapath::pod::everything(Family::of(via)), index, table, 4);
                default.gateway = Some(via);
                default.onlink = via.is_ipv4();
                socket.add_route(&default).unwrap();
            }
            let sysctls = Sysctls::new("/proc/sys".as_ref());
            sysctls.write(&["net", "ipv6", "conf", link.as_str(), "proxy_ndp"], "1").unwrap();
            sysctls.write(&["net", "ipv4", "conf", link.as_str(), "rp_filter"], "2").unwrap();
            sysctls.write(&["net", "ipv4", "neigh", link.as_str(), "proxy_delay"], "0").unwrap();
            sysctls.write(&["net", "ipv6", "neigh", link.as_str(), "proxy_delay"], "0").unwrap();
        });
        router
            .run(|| {
                let mut socket = Socket::open().unwrap();
                let port = socket.index_of(&name("port")).unwrap();
                no_detection(&name("port"));
                socket.change_link(port, &[LinkChange::Up]).unwrap();
                for address in [format!("10.0.{number}.1/24"), format!("2001:db8:{number}::1/64")] {
                    let mut address = Address::new(port, address.parse().unwrap());
                    address.nodad = true;
                    socket.add_address(&address).unwrap();
                }
            })
            .unwrap();
        let pool = |router: IpAddr, addresses: String, own: String| FamilyPool {
            router,
            reserved: vec![ip(&own)],
            addresses: vec![addresses.parse().unwrap()],
        };
        let ipv4 = pool(router4, format!("10.0.{number}.8/29"), format!("10.0.{number}.2"));
        let ipv6 = pool(router6, format!("2001:db8:{number}::8/125"), format!("2001:db8:{number}::2"));
        VnicPool {
            vnic_id: format!("ocid1.vnic.oc1.iad.v{number}").parse().unwrap(),
            link,
            mac: "02:00:17:00:00:01".parse().unwrap(),
            link_has_mac: false,
            mtu: Mtu::VCN,
            table,
            purpose: Purpose::Pods,
            attach: None,
            families: PerFamily {
                ipv4: (families != Families::V6).then_some(ipv4),
                ipv6: (families != Families::V4).then_some(ipv6),
            },
        }
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

    pub(crate) fn spawn(&self, mut program: Command, environment: &[(&str, &str)], conf: &Value) -> Child {
        self.host
            .run(|| {
                let mut child = program
                    .env_clear()
                    .env("CNI_IFNAME", "eth0")
                    .env("CNI_PATH", "/nonexistent")
                    .env(attachment::STATE_DIR_VARIABLE, self.state.path())
                    .envs(environment.iter().copied())
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped())
                    .spawn()
                    .unwrap();
                // VERSION is answered without reading, so the pipe may be closed by now.
                let _ = child.stdin.take().unwrap().write_all(conf.to_string().as_bytes());
                child
            })
            .unwrap()
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
        netns
            .run(|| {
                let mut socket = Socket::open().unwrap();
                let lo = socket.index_of(&name("lo")).unwrap();
                socket.change_link(lo, &[LinkChange::Up]).unwrap();
            })
            .unwrap();
        Self { netns, id: id.to_owned() }
    }

    /// Where a runtime finds its namespace.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.netns.as_fd().as_raw_fd()))
    }

    /// Whether `target` comes to answer this pod.
    pub(crate) fn reaches(&self, target: &str) -> bool {
        reaches(&self.netns, target)
    }

    /// Whether `target` answers one echo request of this pod within a second.
    pub(crate) fn pings(&self, target: &str) -> bool {
        pings(&self.netns, target)
    }
}

/// Far beyond what anything here takes, on a busy machine, too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// How long a run waits for a lock that others hold (`docs/errors.md`, 11).
const LOCK_PATIENCE: Duration = Duration::from_secs(30);

/// Whether a failed run gave up because others held a lock.
pub(crate) fn waited(output: &Output) -> bool {
    let error: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (&error["code"], &error["details"]) == (&json!(11), &json!("timed out"))
}

/// Whether something becomes true in time.
pub(crate) fn within(time: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + time;
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// Whether `target` comes to answer. A link that was just raised drops what it is given until the kernel's own thread has
/// attached its queue, and an answer that a host gives for a pod may come late: both are longer on a busy machine.
pub(crate) fn reaches(netns: &Netns, target: &str) -> bool {
    within(PATIENCE, || pings(netns, target))
}

fn pings(netns: &Netns, target: &str) -> bool {
    netns
        .run(|| {
            let output = Command::new("ping").args(["-n", "-c", "1", "-W", "1", target]).output().unwrap();
            output.status.success()
        })
        .unwrap()
}

/// A node's VNICs have been up for long when pods come; these have not, and IPv6 resolves no neighbour from a link whose own
/// address is still being checked for duplicates.
fn no_detection(link: &IfName) {
    Sysctls::new("/proc/sys".as_ref()).write(&["net", "ipv6", "conf", link.as_str(), "accept_dad"], "0").unwrap();
}

/// Runs a script in a namespace.
pub(crate) fn sh(netns: &Netns, script: &str) -> String {
    let output = netns.run(|| Command::new("sh").args(["-ec", script]).output().unwrap()).unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The host's end that a result names.
pub(crate) fn host_link(result: &Value) -> String {
    result["interfaces"][0]["name"].as_str().unwrap().to_owned()
}

/// The first address that a result gives.
pub(crate) fn address(result: &Value) -> &str {
    result["ips"][0]["address"].as_str().unwrap()
}

pub(crate) fn name(text: &str) -> IfName {
    IfName::new(text).unwrap()
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn json_of(output: &Output) -> Value {
    assert_success(output);
    serde_json::from_slice(&output.stdout).unwrap()
}

pub(crate) fn assert_success(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// The error of a failed call: code and whole text.
pub(crate) fn error_of(output: &Output) -> (u64, String) {
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let error: Value = serde_json::from_slice(&output.stdout).unwrap();
    (error["code"].as_u64().unwrap(), error.to_string())
}
