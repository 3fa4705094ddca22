//! Links against the real kernel, in namespaces of their own.

use std::os::fd::AsFd;
use std::process::Command;
use std::time::{Duration, Instant};

use netlink::{Errno, LinkChange, LinkKind, Netns, NewLink, Peer, Socket};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use vcn::{IfName, MacAddr, Mtu};

const HOST_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const POD_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

fn name(text: &str) -> IfName {
    IfName::new(text).unwrap()
}

fn fresh() -> (Netns, Socket) {
    let netns = Netns::create().unwrap();
    let socket = Socket::open_in(&netns).unwrap();
    (netns, socket)
}

fn sh(netns: &Netns, script: &str) -> String {
    let output = netns.run(|| Command::new("sh").args(["-ec", script]).output().unwrap()).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn veth<'a>(host: &str, pod: &str, netns: &'a Netns) -> NewLink<'a> {
    let peer = Peer { name: name(pod), mac: Some(POD_MAC), mtu: Some(Mtu(9000)), netns: Some(netns.as_fd()) };
    let kind = LinkKind::Veth(peer);
    NewLink { mac: Some(HOST_MAC), mtu: Some(Mtu(9000)), up: true, ..NewLink::new(name(host), kind) }
}

#[test]
fn veth_is_created_with_both_ends_in_their_final_netns() {
    let (_host_netns, mut host) = fresh();
    let (pod_netns, mut pod) = fresh();
    host.add_link(&veth("vcn1", "eth0", &pod_netns)).unwrap();
    pod.change_link_named(&name("eth0"), &[LinkChange::Up]).unwrap();

    let outer = host.link(&name("vcn1")).unwrap();
    let inner = pod.link(&name("eth0")).unwrap();
    assert_eq!((outer.mac, outer.mtu, outer.up, outer.running), (Some(HOST_MAC), Mtu(9000), true, true));
    assert_eq!((inner.mac, inner.mtu, inner.up, inner.running), (Some(POD_MAC), Mtu(9000), true, true));
    assert_eq!((outer.kind.as_deref(), outer.parent), (Some("veth"), Some(inner.index)));
    assert!(outer.peer_netns_id.is_some() && !outer.loopback);
    assert_eq!(host.index_of(&name("vcn1")).unwrap(), outer.index);
    assert!(host.link(&name("eth0")).unwrap_err().is_not_found(), "the pod's end never was on the host");
    assert_eq!(host.links().unwrap().len(), 2, "loopback and one end");
}

#[test]
fn a_veth_end_has_one_queue() {
    let (netns, mut socket) = fresh();
    let (pod_netns, _pod) = fresh();
    socket.add_link(&veth("vcn1", "eth0", &pod_netns)).unwrap();
    let queues = |netns: &Netns, link: &'static str| {
        netns
            .run(move || {
                // A mount of sysfs shows the namespace of the thread that mounts it.
                nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
                let private = nix::mount::MsFlags::MS_REC | nix::mount::MsFlags::MS_PRIVATE;
                nix::mount::mount(None::<&str>, "/", None::<&str>, private, None::<&str>).unwrap();
                let flags = nix::mount::MsFlags::empty();
                nix::mount::mount(Some("sys"), "/sys", Some("sysfs"), flags, None::<&str>).unwrap();
                let queues = std::fs::read_dir(format!("/sys/class/net/{link}/queues")).unwrap();
                queues.map(|queue| queue.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
            })
            .unwrap()
    };
    for found in [queues(&netns, "vcn1"), queues(&pod_netns, "eth0")] {
        // rx-0 and, where the kernel serves several processors, tx-0.
        assert!(!found.is_empty() && found.iter().all(|queue| queue.ends_with("-0")), "{found:?}");
    }
}

#[test]
fn deleting_one_end_removes_both() {
    let (_host_netns, mut host) = fresh();
    let (pod_netns, mut pod) = fresh();
    host.add_link(&veth("vcn1", "eth0", &pod_netns)).unwrap();
    let index = host.index_of(&name("vcn1")).unwrap();
    host.delete_link(index).unwrap();
    assert!(pod.index_of(&name("eth0")).unwrap_err().is_not_found());
    assert!(host.delete_link(index).unwrap_err().is_not_found());
    assert!(host.delete_link_named(&name("vcn1")).unwrap_err().is_not_found());
}

#[test]
fn unlisting_a_pair_removes_both_ends_before_kernel_frees_them() {
    let (host, mut from_outside) = fresh();
    let (pod_netns, mut pod) = fresh();
    let begun = Instant::now();
    host.run(|| {
        let mut socket = Socket::open().unwrap();
        for _ in 0..30 {
            socket.add_link(&veth("vcn1", "eth0", &pod_netns)).unwrap();
            socket.unlist_link_named(&name("vcn1")).unwrap();
            assert!(socket.link(&name("vcn1")).unwrap_err().is_not_found());
            assert_eq!((from_outside.links().unwrap().len(), pod.links().unwrap().len()), (1, 1), "loopback alone");
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "each call timed out after a second without an event");
        for child in 0..30 {
            // Children of this thread only, not of other tests.
            let exited = waitpid(None::<Pid>, Some(WaitPidFlag::__WNOTHREAD));
            assert!(matches!(exited, Ok(WaitStatus::Exited(_, 0))), "child {child} waited for the kernel and exited");
        }
    })
    .unwrap();
}

#[test]
fn unlisting_tells_what_the_kernel_refuses() {
    let (netns, _socket) = fresh();
    netns
        .run(|| {
            let mut socket = Socket::open().unwrap();
            let absent = socket.unlist_link_named(&name("vcn1")).unwrap_err();
            assert!(absent.is_not_found());
            assert_eq!(absent.to_string(), "cannot delete link vcn1");
            assert_eq!(socket.unlist_link_named(&name("lo")).unwrap_err().errno(), Some(Errno::EOPNOTSUPP));
        })
        .unwrap();
}

#[test]
fn a_taken_name_is_already_exists() {
    let (_netns, mut socket) = fresh();
    socket.add_link(&NewLink::new(name("br0"), LinkKind::Bridge)).unwrap();
    let error = socket.add_link(&NewLink::new(name("br0"), LinkKind::Bridge)).unwrap_err();
    assert!(error.is_already_exists() && !error.is_not_found() && !error.is_retryable(), "{error}");
    assert_eq!(error.to_string(), "cannot add link br0");
}

#[test]
fn marks_and_state_are_changed_in_one_request() {
    let (_netns, mut socket) = fresh();
    socket.add_link(&NewLink::new(name("br0"), LinkKind::Bridge)).unwrap();
    let index = socket.index_of(&name("br0")).unwrap();
    let alias = "vcn-native:pod/eth0".to_owned();
    let changes = [
        LinkChange::Alias(alias.clone()),
        LinkChange::Mac(POD_MAC),
        LinkChange::Mtu(Mtu(8000)),
        LinkChange::Rename(name("br1.5")),
        LinkChange::Up,
    ];
    socket.change_link(index, &changes).unwrap();
    let link = socket.link_at(index).unwrap();
    assert_eq!(link.name, name("br1.5"));
    assert_eq!((link.alias, link.mac, link.mtu, link.up), (Some(alias), Some(POD_MAC), Mtu(8000), true));

    socket.change_link(index, &[LinkChange::Down, LinkChange::Alias(String::new())]).unwrap();
    let link = socket.link_at(index).unwrap();
    assert_eq!((link.up, link.alias), (false, None));
}

#[test]
fn link_moves_to_another_netns_with_new_name_and_back() {
    let (host_netns, mut host) = fresh();
    let (pod_netns, mut pod) = fresh();
    pod.add_link(&NewLink::new(name("ens5"), LinkKind::Bridge)).unwrap();
    host.add_link(&veth("ens5", "wire", &host_netns)).unwrap();
    let index = host.index_of(&name("ens5")).unwrap();

    let error = host.change_link(index, &[LinkChange::Netns(&pod_netns)]).unwrap_err();
    assert!(error.is_already_exists(), "the name is taken there: {error}");
    host.change_link(index, &[LinkChange::Netns(&pod_netns), LinkChange::Rename(name("net1"))]).unwrap();
    let moved = pod.link(&name("net1")).unwrap();
    assert_eq!((moved.mac, moved.up), (Some(HOST_MAC), false));

    pod.change_link(moved.index, &[LinkChange::Netns(&host_netns), LinkChange::Rename(name("ens5"))]).unwrap();
    assert_eq!(host.link(&name("ens5")).unwrap().mac, Some(HOST_MAC));
}

#[test]
fn the_kernels_own_words_are_in_the_error() {
    let (_netns, mut socket) = fresh();
    socket.add_link(&NewLink::new(name("br0"), LinkKind::Bridge)).unwrap();
    let error = socket.change_link_named(&name("br0"), &[LinkChange::Mtu(Mtu(10))]).unwrap_err();
    assert_eq!(error.cause().to_string(), "Invalid argument (mtu less than device minimum)");
}

#[test]
fn loopback_is_recognized_and_has_no_mac() {
    let (_netns, mut socket) = fresh();
    let lo = socket.link(&name("lo")).unwrap();
    assert!(lo.loopback && !lo.up && lo.mac.is_none());
}

/// A name that it would expand, or refuse, is found out only after an ADD has moved the link.
#[test]
fn kernel_takes_every_valid_name_as_it_is() {
    let (_netns, mut socket) = fresh();
    socket.add_link(&NewLink::new(name("first"), LinkKind::Bridge)).unwrap();
    let index = socket.index_of(&name("first")).unwrap();
    let valid = ('\u{1}'..='\u{17f}').filter_map(|letter| IfName::new(format!("x{letter}d")).ok());
    let mut tried = 0;
    for valid in valid {
        socket
            .change_link(index, &[LinkChange::Rename(valid.clone())])
            .unwrap_or_else(|error| panic!("{valid}: {error}"));
        assert_eq!(socket.link_at(index).unwrap().name, valid);
        tried += 1;
    }
    assert!(tried > 300, "{tried}");
}

/// The kernel refuses a move to a namespace that has one of the names.
#[test]
fn altnames_are_removed_however_many_there_are() {
    let (netns, mut socket) = fresh();
    socket.add_link(&NewLink::new(name("br0"), LinkKind::Bridge)).unwrap();
    let index = socket.index_of(&name("br0")).unwrap();
    socket.delete_altnames(index).unwrap();
    let long = "z".repeat(110);
    sh(
        &netns,
        &format!(
            "ip link property add dev br0 altname ens5 altname $(printf 'caf\\351')
             for i in $(seq 500); do echo link property add dev br0 altname {long}$i; done | ip -force -batch - 2>/dev/null || true"
        ),
    );
    let shown = |netns: &Netns| sh(netns, "ip link show br0");
    assert!(shown(&netns).contains("altname ens5"));
    assert!(socket.links().unwrap().iter().any(|link| link.index == index), "the list is read all the same");
    socket.delete_altnames(index).unwrap();
    assert!(!shown(&netns).contains("altname"));
    assert!(socket.delete_altnames(9999).unwrap_err().is_not_found());
}

#[test]
fn settings_that_a_pod_changed_are_read_and_reset() {
    let (netns, mut socket) = fresh();
    socket.add_link(&NewLink::new(name("br0"), LinkKind::Bridge)).unwrap();
    let before = socket.link(&name("br0")).unwrap();
    sh(&netns, "ip link set br0 group 7 txqueuelen 3 promisc on allmulticast on arp off mtu 1400");
    let changed = socket.link(&name("br0")).unwrap();
    assert_eq!((changed.group, changed.queue_length, changed.mtu, changed.arp), (7, 3, Mtu(1400), false));
    let settings = before.settings();
    let changes = [
        LinkChange::PlainReception,
        LinkChange::Group(settings.group),
        LinkChange::QueueLength(settings.queue_length),
        LinkChange::Mtu(settings.mtu),
    ];
    socket.change_link(before.index, &changes).unwrap();
    assert_eq!(socket.link(&name("br0")).unwrap(), before);
    let shown = sh(&netns, "ip link show br0");
    assert!(!shown.contains("PROMISC") && !shown.contains("ALLMULTI") && !shown.contains("NOARP"), "{shown}");
}
