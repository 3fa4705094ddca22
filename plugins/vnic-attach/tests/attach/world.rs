//! A node in namespaces: a host, VNICs whose far ends are routers, and pods that have an interface of another plugin's.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Output};

use host_harness::{Families, error_of, json_of, name, path_of, sh, spawn};
use ipam::{Allocations, AttachOffer, BootId, FamilyPool, Pools, Store, VnicPool};
use netlink::Netns;
use serde_json::{Value, json};
use vcn::{AttachMode, LinkKindName, Mtu, PerFamily, Purpose, TableId, VlanTag};

pub(crate) const PLUGIN: &str = env!("CARGO_BIN_EXE_vnic-attach");
pub(crate) const ANNOTATIONS: &str = "io.kubernetes.cri.pod-annotations";

/// Addresses outside of all subnets: behind each router.
pub(crate) const OUTSIDE: [&str; 2] = ["203.0.113.7", "2001:db8:ffff::7"];

pub(crate) const HOST: [&str; 2] = ["198.51.100.9", "2001:db8:fffe::9"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Machine {
    Virtual,
    BareMetal,
}

/// A VNIC of the node, named `v` and its number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vnic {
    pub(crate) mode: AttachMode,
    pub(crate) families: Families,
    /// Which subnet: 10.0.N.0/24 and 2001:db8:N::/64.
    pub(crate) subnet: u8,
}

pub(crate) struct World {
    pub(crate) host: Netns,
    pub(crate) routers: Vec<Netns>,
    pub(crate) state: tempfile::TempDir,
}

pub(crate) struct Pod {
    pub(crate) netns: Netns,
    pub(crate) id: String,
}

/// A call's variables and configuration.
pub(crate) struct Call {
    pub(crate) environment: Vec<(&'static str, String)>,
    pub(crate) conf: Value,
}

impl World {
    pub(crate) fn new(machine: Machine, vnics: &[Vnic]) -> Self {
        let create = |_| Netns::create().unwrap();
        let world = Self {
            host: create(0),
            routers: (0..vnics.len()).map(create).collect(),
            state: tempfile::tempdir().unwrap(),
        };
        sh(
            &world.host,
            &format!(
                "ip link set lo up; ip addr add {}/32 dev lo; ip addr add {}/128 dev lo
             echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
             echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
             ip rule add pref 512 lookup 999 suppress_prefixlength 31 proto 157
             ip -6 rule add pref 512 lookup 999 suppress_prefixlength 127 proto 157",
                HOST[0], HOST[1]
            ),
        );
        let pools = vnics.iter().enumerate().map(|(number, vnic)| world.vnic(machine, number, *vnic)).collect();
        world.write_pools(pools);
        world
    }

    pub(crate) fn write_pools(&self, vnics: Vec<VnicPool>) {
        Pools::new(BootId::current().unwrap(), vnics, None).write(self.state.path()).unwrap();
    }

    pub(crate) fn pools(&self) -> Vec<VnicPool> {
        Pools::read(self.state.path(), &BootId::current().unwrap()).unwrap().vnics
    }

    pub(crate) fn allocations(&self) -> Allocations {
        Store::new(self.state.path(), BootId::current().unwrap()).read().unwrap()
    }

    /// Link and router of a VNIC, and what the agent says of it.
    #[expect(clippy::too_many_lines, reason = "scripts of two kinds of machines")]
    fn vnic(&self, machine: Machine, number: usize, vnic: Vnic) -> VnicPool {
        let (port, mac) = (format!("ens{}", 5 + number), mac(number));
        let tag = 100 + number;
        let router = &self.routers[number];
        let far = path_of(router).display().to_string();
        sh(
            &self.host,
            &format!(
                "ip link add {port} address {mac} mtu 9000 type veth peer name port mtu 9000
             ip link set port netns {far}; ip link set {port} up"
            ),
        );
        let (carrier, link) = match machine {
            Machine::Virtual => ("port".to_owned(), port.clone()),
            Machine::BareMetal => {
                sh(&self.host, &format!("ip link set {port} address 02:00:00:00:ff:0{number}"));
                ("tagged".to_owned(), format!("{port}.v"))
            }
        };
        let s = vnic.subnet;
        let vlan = if machine == Machine::BareMetal {
            format!("ip link set port up; ip link add link port name tagged type vlan id {tag}")
        } else {
            String::new()
        };
        sh(
            router,
            &format!(
                "echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad; {vlan}
             ip link set lo up; ip link set {carrier} up; echo 0 >/proc/sys/net/ipv6/conf/{carrier}/accept_dad
             ip addr add 10.0.{s}.1/24 dev {carrier}; ip addr add 2001:db8:{s}::1/64 dev {carrier} nodad
             ip addr add fe80::1:1/64 dev {carrier} nodad
             ip addr add {}/32 dev lo; ip addr add {}/128 dev lo",
                OUTSIDE[0], OUTSIDE[1]
            ),
        );
        let is_shared = vnic.mode == AttachMode::Shared;
        let table = 1000 + number;
        if is_shared {
            if machine == Machine::BareMetal {
                sh(&self.host, &format!("ip link add link {port} name {link} address {mac} type vlan id {tag}"));
            }
            sh(&self.host, &format!(
                "ip link set {link} up; echo 2 >/proc/sys/net/ipv4/conf/{link}/rp_filter
                 echo 0 >/proc/sys/net/ipv4/neigh/{link}/proxy_delay; echo 0 >/proc/sys/net/ipv6/neigh/{link}/proxy_delay
                 echo 1 >/proc/sys/net/ipv6/conf/{link}/proxy_ndp; echo 0 >/proc/sys/net/ipv6/conf/{link}/accept_dad
                 ip addr add 10.0.{s}.{}/32 dev {link}
                 ip route add 10.0.{s}.1 dev {link} table {table}; ip route add default via 10.0.{s}.1 dev {link} table {table} onlink
                 ip route add default via fe80::1:1 dev {link} table {table}", 2 + number
            ));
        }
        let first = 8 * (number + 1);
        let pool = |router: String, addresses: String| FamilyPool {
            router: router.parse().unwrap(),
            reserved: Vec::new(),
            addresses: vec![addresses.parse().unwrap()],
        };
        let ipv4 = pool(format!("10.0.{s}.1"), format!("10.0.{s}.{first}/{}", if is_shared { 29 } else { 32 }));
        let ipv6 = pool("fe80::1:1".into(), format!("2001:db8:{s}::{first:x}/{}", if is_shared { 125 } else { 128 }));
        let exclusive_vlan = machine == Machine::BareMetal && !is_shared;
        VnicPool {
            vnic_id: format!("ocid1.vnic.oc1.iad.v{number}").parse().unwrap(),
            link: name(if exclusive_vlan { &port } else { &link }),
            mac: mac.parse().unwrap(),
            link_has_mac: false,
            mtu: Mtu::VCN,
            table: TableId(u32::try_from(table).unwrap()),
            purpose: Purpose::Attach,
            attach: Some(AttachOffer {
                name: format!("v{number}"),
                mode: vnic.mode,
                allowed_namespaces: vec!["team-a".into()],
                link_kind: match is_shared && machine == Machine::BareMetal {
                    true => LinkKindName::vlan(),
                    false => LinkKindName::new(Some("veth".into())),
                },
                vlan: exclusive_vlan.then(|| VlanTag::new(u16::try_from(tag).unwrap()).unwrap()),
                subnets: PerFamily {
                    ipv4: Some(format!("10.0.{s}.0/24").parse().unwrap()),
                    ipv6: Some(format!("2001:db8:{s}::/64").parse().unwrap()),
                },
                routes: vec![vcn::VnicRoute { destination: "192.0.2.0/24".parse().unwrap(), via: None }],
                is_leaving: false,
            }),
            families: PerFamily {
                ipv4: (vnic.families != Families::V6).then_some(ipv4),
                ipv6: (vnic.families != Families::V4).then_some(ipv6),
            },
        }
    }

    /// A pod with the interface of another plugin: 10.9.0.N and fd00:9::N, behind the host.
    pub(crate) fn pod(&self, id: &str, number: u8) -> Pod {
        let pod = Pod { netns: Netns::create().unwrap(), id: id.to_owned() };
        let path = pod.path();
        sh(&self.host, &format!(
            "ip link add prim{number} type veth peer name far{number}; ip link set far{number} name eth0 netns {}
             ip link set prim{number} up; ip addr add 10.9.0.1/32 dev prim{number}; ip addr add fe80::9/64 dev prim{number} nodad
             ip route add 10.9.0.{number} dev prim{number}; ip route add fd00:9::{number} dev prim{number}", path.display()
        ));
        sh(&pod.netns, &format!(
            "echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
             ip link set lo up; ip link set eth0 up; ip addr add 10.9.0.{number}/32 dev eth0
             ip addr add fd00:9::{number}/128 dev eth0 nodad
             ip route add 10.9.0.1 dev eth0; ip route add default via 10.9.0.1; ip route add default via fe80::9 dev eth0"
        ));
        pod
    }

    /// A call of the chain for a pod with this annotation, if any.
    pub(crate) fn chained(&self, verb: &str, pod: &Pod, annotation: Option<&str>) -> Call {
        let mut conf = json!({
            "cniVersion": "1.1.0", "name": "pods", "type": "vnic-attach", "capabilities": {ANNOTATIONS: true},
            "prevResult": previous(pod),
        });
        if let Some(text) = annotation {
            conf["runtimeConfig"] = json!({ANNOTATIONS: {"other": "x", "oke.oraclecloud.com/interfaces": text}});
        }
        Call { environment: environment(verb, pod, "eth0"), conf }
    }

    /// A call of Multus for a NetworkAttachmentDefinition.
    pub(crate) fn delegated(&self, verb: &str, pod: &Pod, vnic: &str, ifname: &str) -> Call {
        let conf = json!({"cniVersion": "1.0.0", "name": "nad", "type": "vnic-attach", "vnic": vnic});
        Call { environment: environment(verb, pod, ifname), conf }
    }

    pub(crate) fn run(&self, call: &Call) -> Output {
        self.spawn(Command::new(PLUGIN), call).wait_with_output().unwrap()
    }

    pub(crate) fn spawn(&self, program: Command, call: &Call) -> Child {
        let state = self.state.path().to_str().unwrap();
        let usual = [("CNI_PATH", "/nonexistent"), (attachment::STATE_DIR_VARIABLE, state)];
        let variables = call.environment.iter().map(|(name, value)| (*name, value.as_str()));
        spawn(&self.host, program, usual.into_iter().chain(variables), &call.conf)
    }

    pub(crate) fn add(&self, pod: &Pod, annotation: &str) -> Value {
        json_of(&self.run(&self.chained("ADD", pod, Some(annotation))))
    }

    /// An ADD that fails because the pod cannot have what it requests.
    pub(crate) fn assert_refused(&self, pod: &Pod, annotation: &str, reason: &str) {
        let (code, text) = error_of(&self.run(&self.chained("ADD", pod, Some(annotation))));
        assert!(code == 11 && text.contains(reason), "{annotation}: {text}");
    }

    /// As a runtime that has forgotten the annotation.
    pub(crate) fn del(&self, pod: &Pod) {
        json_of(&self.run(&self.chained("DEL", pod, None)));
    }

    /// All that an ADD could change on the host, as text, without what the kernel does by itself.
    pub(crate) fn snapshot(&self) -> String {
        let text = sh(
            &self.host,
            "ip -o link | sed -E 's/^[0-9]+: ([^:@]+).*(link.ether [0-9a-f:]+).*(alias.*)?/\\1 \\2 \\3/'
             ip -o addr | grep -v fe80 | sed -E 's/^[0-9]+: //'; ip rule; ip -6 rule; ip neigh show proxy; ip -6 neigh show proxy
             ip route show table all; ip -6 route show table all",
        );
        let stays = |line: &&str| !line.contains("proto kernel") && !line.contains("multicast");
        // The kernel notices a link's carrier some time after the link.
        text.lines().filter(stays).map(|line| format!("{}\n", line.replace(" linkdown", ""))).collect()
    }
}

impl Pod {
    pub(crate) fn path(&self) -> PathBuf {
        path_of(&self.netns)
    }
}

pub(crate) fn shared(families: Families, subnet: u8) -> Vnic {
    Vnic { mode: AttachMode::Shared, families, subnet }
}

pub(crate) fn exclusive(families: Families, subnet: u8) -> Vnic {
    Vnic { mode: AttachMode::Exclusive, families, subnet }
}

pub(crate) fn mac(number: usize) -> String {
    format!("02:00:17:00:00:0{number}")
}

fn environment(verb: &str, pod: &Pod, ifname: &str) -> Vec<(&'static str, String)> {
    let netns = pod.path().display().to_string();
    let args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=team-a;K8S_POD_NAME=web-0".to_owned();
    let id = pod.id.clone();
    vec![
        ("CNI_COMMAND", verb.into()),
        ("CNI_CONTAINERID", id),
        ("CNI_NETNS", netns),
        ("CNI_IFNAME", ifname.into()),
        ("CNI_ARGS", args),
    ]
}

pub(crate) fn previous(pod: &Pod) -> Value {
    json!({
        "cniVersion": "1.1.0", "x-other": 1.5,
        "interfaces": [{"name": "prim"}, {"name": "eth0", "sandbox": pod.path()}],
        "ips": [{"address": "10.9.0.5/32", "gateway": "10.9.0.1", "interface": 1}], "routes": [{"dst": "0.0.0.0/0"}], "dns": {},
    })
}

/// The addresses that a result gives an interface, without prefix lengths.
pub(crate) fn addresses(result: &Value, interface: &str) -> Vec<IpAddr> {
    let at =
        result["interfaces"].as_array().unwrap().iter().position(|it| it["name"] == interface && it["sandbox"] != "");
    let of_it =
        result["ips"].as_array().unwrap().iter().filter(|ip| ip["interface"].as_u64() == at.map(|at| at as u64));
    of_it.map(|ip| ip["address"].as_str().unwrap().split('/').next().unwrap().parse().unwrap()).collect()
}
