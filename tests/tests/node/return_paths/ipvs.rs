//! Node ports with kube-proxy in IPVS mode: real IPVS, the real agent and plugin. The guest's kernel (tests/uml) has IPVS and
//! no nf_tables, so there our two marking chains are two iptables rules for each VNIC. Under tests/qemu/run they are the
//! agent's own.
//!
//! The two are the same to a packet. The chains stand on both sides of -100, where destinations are translated, and in IPVS
//! mode none is on a packet's way in: IPVS translates behind, on input.

use std::fs;
use std::net::{IpAddr, SocketAddr};

use super::kube_proxy::{CLUSTER, LOCAL, Mode, SERVICE_PORT, cluster_ip, filled_in};
use super::node_ports::{node_port_answers_at_the_same_vnic, pods_reach_services};
use super::world::{PORT, Server, World};
use crate::wait_for;
use vcn::{Family, Mark, PRIMARY_MARK, TABLE_BASE, TableId, vnic_mark};

/// What is there once: rules, the Services' addresses, settings.
fn start_kube_proxy(world: &World) {
    // Has the kernel load IPVS, if it was not, and the settings appear.
    reset(world);
    for setting in ["conntrack", "expire_nodest_conn", "expire_quiescent_template"] {
        world.on_node("tee", &[&format!("/proc/sys/net/ipv4/vs/{setting}")], "1");
    }
    world.on_node("ip", &["link", "add", "kube-ipvs0", "type", "dummy"], "");
    for family in Family::ALL {
        world.on_node("ip", &["addr", "add", &cluster_ip(family).to_string(), "dev", "kube-ipvs0", "nodad"], "");
    }
}

/// Makes the Service's endpoint this pod.
pub(super) fn publish(world: &World, pod: IpAddr) {
    let family = Family::of(pod);
    let (iptables, prefix, inet, loopback) = match family {
        Family::Ipv4 => ("iptables-legacy", "KUBE-", "inet", "127.0.0.0/8"),
        Family::Ipv6 => ("ip6tables-legacy", "KUBE-6-", "inet6", "::1/128"),
    };
    let fill = |template: &str| {
        let template = template.replace("@KUBE@", prefix).replace("@INET@", inet).replace("@LOOPBACK@", loopback);
        filled_in(&template, pod, &[])
    };
    world.on_node("ipset", &["-exist", "restore"], &fill(include_str!("rules/ipvs.sets")));
    world.on_node(&format!("{iptables}-restore"), &[], &fill(include_str!("rules/ipvs.rules")));
    let at_node = world.own_addresses(family).into_iter().flat_map(|address| [(address, LOCAL), (address, CLUSTER)]);
    let services: String = at_node
        .chain([(cluster_ip(family), SERVICE_PORT)])
        .map(|(address, port)| {
            let (service, pod) = (SocketAddr::new(address, port), SocketAddr::new(pod, PORT));
            format!("-A -t {service} -s rr\n-a -t {service} -r {pod} -m -w 1\n")
        })
        .collect();
    world.on_node("ipvsadm", &["-R"], &services);
}

/// Takes away what was published.
pub(super) fn reset(world: &World) {
    world.on_node("ipvsadm", &["--clear"], "");
}

/// Waits until earlier connections have ended. The kernel forgets a connection in IPVS first and in conntrack afterwards. A pod's
/// packet that comes in between is marked and not translated. It would leave by the VNIC that got the request, in the pod's name, and
/// the fabric drops that.
pub(super) fn wait_until_nothing_is_open(pods: [&Server; 3]) {
    for pod in pods {
        wait_for(&format!("nothing of {} is open", pod.label), || nothing_is_open(pod));
    }
}

/// Whether a pod has sent its last packet of each of its connections, and knows that it arrived.
fn nothing_is_open(pod: &Server) -> bool {
    // The kernel's numbers of TIME_WAIT, for what the pod requested, and of LISTEN.
    let silent = |socket: &str| socket.split_whitespace().nth(3).is_some_and(|state| ["06", "0A"].contains(&state));
    let sockets =
        pod.pod.run(|| ["tcp", "tcp6"].map(|kind| fs::read_to_string(format!("/proc/thread-self/net/{kind}"))));
    sockets.unwrap().into_iter().all(|sockets| sockets.unwrap().lines().skip(1).all(silent))
}

/// What our nft table's first two chains say, where the kernel has no nf_tables.
fn mark_by_iptables(world: &World) {
    let table = world.node.command("nft").args(["list", "table", "inet", vcn::NFT_TABLE]).output().unwrap();
    if table.status.success() {
        return;
    }
    let vnics = world.node.vnics();
    let marks = [PRIMARY_MARK].into_iter().chain((0..).map_while(|slot| vnic_mark(TableId(TABLE_BASE + slot))));
    for (vnic, mark) in vnics.iter().zip(marks) {
        let Mark { value, mask } = mark;
        for iptables in ["iptables-legacy", "ip6tables-legacy"] {
            let link = vnic.link.as_str();
            let way_in = format!(
                "-t mangle -A PREROUTING -i {link} -m conntrack --ctdir ORIGINAL -m addrtype --dst-type LOCAL \
                 -j CONNMARK --set-xmark {value:#x}/{mask:#x}"
            );
            let direction = if mark == PRIMARY_MARK { "" } else { "-m conntrack --ctdir REPLY" };
            let way_back = format!(
                "-t mangle -A PREROUTING {direction} -m connmark --mark {value:#x}/{mask:#x} \
                 -j MARK --set-xmark {value:#x}/{mask:#x}"
            );
            for rule in [way_in, way_back] {
                world.on_node(iptables, &rule.split_whitespace().collect::<Vec<_>>(), "");
            }
        }
    }
}

fn started() -> World {
    let world = World::start();
    mark_by_iptables(&world);
    start_kube_proxy(&world);
    world
}

#[test]
#[ignore = "needs a kernel with IPVS"]
fn node_port_reply_keeps_its_path_with_ipvs() {
    node_port_answers_at_the_same_vnic(Mode::Ipvs, &started());
}

/// IPVS routes what it has translated again, by default; where that is off, the mark alone leads back.
#[test]
#[ignore = "needs a kernel with IPVS"]
fn node_port_reply_keeps_its_path_with_ipvs_without_rerouting() {
    let world = started();
    world.on_node("tee", &["/proc/sys/net/ipv4/vs/snat_reroute"], "0");
    node_port_answers_at_the_same_vnic(Mode::Ipvs, &world);
}

#[test]
#[ignore = "needs a kernel with IPVS"]
fn pods_reach_own_and_remote_services_with_ipvs() {
    pods_reach_services(Mode::Ipvs, &started());
}
