//! Taken off a node, in a network namespace, under what `manifests/uninstall` gives: nothing of ours is left, and
//! everything else is as it was.

mod cluster;
mod drop_ins;
mod forwarding;
pub(crate) mod kernel;
mod links;
mod log;
mod record;
mod refused;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use cni::AttachmentKey;
use ipam::{BootId, BootTime, FamilyPool, PodRecord, Pools, Request, Store, VnicPool};
use sandbox::Container;
use vcn::{Mtu, PerFamily, Purpose, TableId};

use crate::node::{Node, PORTMAP};
use kernel::Host;

const FLANNEL: &str = r#"{ "name":"cbr0", "cniVersion":"0.3.1", "plugins":[ {"type":"flannel"} ] }"#;

impl Node {
    /// What the pod of `manifests/uninstall` does.
    fn uninstall(&self, host: &Host, more: &[&str]) -> (i32, String) {
        self.uninstall_in(&Container::uninstaller().unwrap(), host, more)
    }

    fn uninstall_in(&self, container: &Container, host: &Host, more: &[&str]) -> (i32, String) {
        host.inside(|| self.run_in(&self.placed(container.clone()), more))
    }

    /// Nothing of ours but the directories that are mounted.
    fn knows_nothing(&self) -> bool {
        self.entries("run").is_empty() && self.entries("lib").is_empty()
    }

    fn installed() -> Self {
        let node = Self::new();
        node.executable("bin/portmap", PORTMAP);
        let (code, text) = node.run(&["--node-label", "true", "--usable"]);
        assert_eq!(code, 0, "{text}");
        node
    }

    /// One pod's address, as the plugin would have noted it.
    pub(crate) fn allocate(&self) {
        let (boot, state) = (BootId::current().unwrap(), self.path("run"));
        fs::create_dir_all(&state).unwrap();
        let pool = FamilyPool {
            router: "10.0.32.1".parse().unwrap(),
            reserved: vec![],
            addresses: vec!["10.0.32.7/32".parse().unwrap()],
        };
        let vnic = VnicPool {
            vnic_id: "ocid1.vnic.oc1.iad.a".parse().unwrap(),
            link: "ens5".parse().unwrap(),
            mac: "02:00:17:00:00:01".parse().unwrap(),
            link_has_mac: true,
            mtu: Mtu::VCN,
            table: TableId(1000),
            purpose: Purpose::Pods,
            families: PerFamily { ipv4: Some(pool), ipv6: None },
        };
        let pools = Pools::new(boot.clone(), vec![vnic], None);
        let key: AttachmentKey = "vcn-native/0123abcd/eth0".parse().unwrap();
        let request = Request {
            key: key.clone(),
            pod: Some(PodRecord { namespace: "default".into(), name: "web-0".into(), uid: None }),
            host_link: "vcn012345678901".parse().unwrap(),
            netns: None,
            mtu: None,
        };
        Store::new(&state, boot)
            .update(|all| {
                all.reserve(&pools, request, BootTime::now()?)?;
                all.commit(&key)
            })
            .unwrap();
    }
}

#[test]
fn everything_of_ours_goes_and_everything_else_stays() {
    let node = Node::new();
    node.executable("bin/portmap", PORTMAP);
    fs::write(node.path("net.d/87-podman.conflist"), r#"{"plugins":[{"type":"bridge"}]}"#).unwrap();
    let host = Host::new();
    let (files, kernel) = (node.snapshot(), host.snapshot());
    assert_eq!(node.run(&["--node-label", "true", "--usable"]).0, 0);
    host.populate(&node.path("lib"));
    fs::create_dir_all(node.path("run/allocations")).unwrap();
    fs::write(node.path("run/pools.json"), "{}").unwrap();
    fs::write(node.path("lib/tables.json"), "{}").unwrap();
    fs::write(node.path("lib").join(vcn::NPN_COPY_FILE), "{}").unwrap();
    fs::write(node.path("lib").join(vcn::TOLD_FILE), "{}").unwrap();
    fs::write(node.path("lib/nativepodnetwork.json"), "an operator's").unwrap();
    fs::write(node.path("bin/.oke-cni-installer.00.tmp"), "half").unwrap();
    assert_ne!(host.snapshot(), kernel);

    let (code, text) = node.uninstall(&host, &["--dry-run", "--force"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("would: remove ") && text.contains("status: planned\n"), "{text}");
    assert_ne!(host.snapshot(), kernel);

    let (code, text) = node.uninstall(&host, &["--force"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("status: removed"), "{text}");
    assert_eq!(node.snapshot(), files);
    assert_eq!(host.snapshot(), kernel);
    assert_eq!(node.entries("run"), [""; 0]);
    assert_eq!(node.entries("lib"), ["nativepodnetwork.json"], "what an operator put there is his");

    let (code, text) = node.uninstall(&host, &[]);
    assert_eq!(code, 0, "it may be repeated: {text}");
    assert!(!text.contains("did: "), "{text}");
}

/// The only way without a container, for a host that no cluster reaches any more.
#[test]
fn by_hand_on_a_host_it_does_the_same_and_the_directories_go_too() {
    let node = Node::installed();
    let host = Host::new();
    let (files, kernel) = (node.snapshot(), host.snapshot());
    host.populate(&node.path("lib"));
    fs::write(node.path("run/pools.json"), "{}").unwrap();
    let (code, text) = host.inside(|| node.uninstall_on_a_host(&["--force", "--dry-run"]));
    assert!(code == 0 && text.contains("status: planned\n"), "{text}");
    assert_eq!(node.snapshot(), files);
    let (code, text) = host.inside(|| node.uninstall_on_a_host(&["--force"]));
    assert!(code == 0 && text.contains("status: removed"), "{text}");
    let note = "note: no usable CNI configuration is left on this node";
    assert!(text.contains(note) && text.contains("cni_status_grace_period"), "{text}");
    assert!(text.contains("installer.uninstall_note"), "{text}");
    assert_eq!(node.names(), ["bin/portmap"]);
    assert_eq!(host.snapshot(), kernel);
    assert!(!node.path("run").exists() && !node.path("lib").exists());
}

#[test]
fn what_was_there_before_us_comes_back_to_the_byte() {
    let node = Node::new();
    node.executable("bin/vcn-native", "somebody's own plugin of that name\0\u{fffd}");
    fs::set_permissions(node.path("bin/vcn-native"), fs::Permissions::from_mode(0o711)).unwrap();
    let theirs = "{\"name\":\"theirs\",\n\"plugins\":[{\"type\":\"bridge\"}] }";
    fs::write(node.conflist(), theirs).unwrap();
    fs::write(node.path("net.d/10-flannel.conflist"), FLANNEL).unwrap();
    node.executable("source/vnic-attach", crate::node::PLUGIN);
    let before = node.snapshot();
    assert_eq!(node.run(&["--node-label", "false", "--chain-into", "10-flannel.conflist"]).0, 0);
    assert_eq!(node.run(&["--node-label", "true", "--usable"]).0, 0);
    node.executable("source/vcn-native", PORTMAP);
    assert_eq!(node.run(&["--node-label", "true", "--usable"]).0, 0);
    let (code, text) = node.uninstall(&Host::new(), &[]);
    assert_eq!(code, 0, "{text}");
    let plain = |snapshot: crate::node::Snapshot| {
        snapshot.into_iter().map(|(path, (contents, mode, ..))| (path, contents, mode)).collect::<Vec<_>>()
    };
    assert_eq!(plain(node.snapshot()), plain(before));
}

#[test]
fn a_plugin_in_somebody_elses_chain_is_taken_out_to_the_byte() {
    let node = Node::new();
    node.executable("source/vnic-attach", crate::node::PLUGIN);
    fs::write(node.path("net.d/10-flannel.conflist"), FLANNEL).unwrap();
    node.run(&["--node-label", "false", "--chain-into", "10-flannel.conflist"]);
    assert_ne!(fs::read_to_string(node.path("net.d/10-flannel.conflist")).unwrap(), FLANNEL);
    let (code, text) = node.uninstall(&Host::new(), &[]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(fs::read_to_string(node.path("net.d/10-flannel.conflist")).unwrap(), FLANNEL);
    assert_eq!(node.names(), ["net.d/10-flannel.conflist"]);
}

#[test]
fn a_directory_that_was_named_by_mistake_keeps_what_is_not_ours() {
    let node = Node::installed();
    fs::create_dir_all(node.path("run/containerd")).unwrap();
    for (name, _) in [("run/containerd/containerd.sock", ""), ("run/agent.conf", ""), ("run/pools.jsonl", "")] {
        fs::write(node.path(name), "somebody's").unwrap();
    }
    let ours = ["pools.json", "pools.json.new", "allocations.lock", "verbs.log.1", "allocations.json.damaged"];
    ours.iter().for_each(|name| fs::write(node.path("run").join(name), "{}").unwrap());
    let (code, text) = node.uninstall(&Host::new(), &[]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(node.entries("run"), ["agent.conf", "containerd", "pools.jsonl"]);
    assert!(node.path("run/containerd/containerd.sock").exists());
}

#[test]
fn a_configuration_that_somebody_made_his_own_is_left_and_named() {
    let node = Node::installed();
    let theirs = r#"{"name":"theirs","plugins":[{"type":"bridge"}]}"#;
    fs::write(node.conflist(), theirs).unwrap();
    let (code, text) = node.uninstall(&Host::new(), &[]);
    assert!(code == 0 && text.contains("05-vcn-native.conflist: it was not written by us"), "{text}");
    assert_eq!(fs::read_to_string(node.conflist()).unwrap(), theirs);
    assert_eq!(node.names(), ["bin/portmap", "net.d/05-vcn-native.conflist"]);

    let node = Node::installed();
    fs::write(node.conflist(), "{\"name").unwrap();
    assert_eq!(node.uninstall(&Host::new(), &[]).0, 0);
    assert_eq!(node.names(), ["bin/portmap"], "ours, damaged, stops the runtime: it goes");
}

#[test]
fn after_an_upgrade_that_failed_the_old_binary_is_known_to_be_ours() {
    let node = Node::installed();
    // No room for either: what is remembered last was never in place.
    for release in ["two", "three"] {
        node.executable("source/vcn-native", &format!("{PORTMAP}# {release}"));
        fs::set_permissions(node.path("bin"), fs::Permissions::from_mode(0o555)).unwrap();
        let (code, text) = node.run(&["--node-label", "true", "--usable"]);
        assert!(code == 1 && text.contains("[denied]"), "{text}");
    }
    fs::set_permissions(node.path("bin"), fs::Permissions::from_mode(0o755)).unwrap();
    let (code, text) = node.uninstall(&Host::new(), &[]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(node.names(), ["bin/portmap"], "{text}");
}

#[test]
fn a_link_that_was_in_our_place_comes_back_as_a_link() {
    let node = Node::new();
    fs::write(node.path("lib-theirs"), "theirs").unwrap();
    let links = [(node.path("bin/vcn-native"), "vcn-native-current"), (node.conflist(), "/opt/theirs.conflist")];
    links.iter().for_each(|(link, to)| symlink(to, link).unwrap());
    let (code, text) = node.run(&["--node-label", "true", "--usable"]);
    assert_eq!(code, 0, "{text}");
    assert!(links.iter().all(|(link, _)| link.symlink_metadata().unwrap().is_file()));
    assert_eq!(node.uninstall(&Host::new(), &[]).0, 0);
    for (link, to) in links {
        assert_eq!(fs::read_link(link).unwrap(), Path::new(to));
    }
}

#[test]
fn what_cannot_be_given_back_is_not_replaced() {
    let node = Node::new();
    fs::create_dir_all(node.path("lib")).unwrap();
    fs::write(node.path("lib/before"), "no directory").unwrap();
    let theirs = r#"{"name":"theirs","plugins":[{"type":"bridge"}]}"#;
    fs::write(node.conflist(), theirs).unwrap();
    let (code, text) = node.run(&["--node-label", "true", "--usable"]);
    assert!(code == 1 && text.contains("[write-failed]"), "{text}");
    assert_eq!(fs::read_to_string(node.conflist()).unwrap(), theirs);
}

#[test]
fn files_of_our_names_that_are_not_ours_are_left_and_named() {
    let node = Node::installed();
    node.executable("bin/vcn-native", "somebody's");
    let (code, text) = node.uninstall(&Host::new(), &[]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("left: ") && text.contains("bin/vcn-native: it is not what we installed"), "{text}");
    assert_eq!(node.names(), ["bin/portmap", "bin/vcn-native"]);

    let node = Node::new();
    fs::write(node.conflist(), r#"{"plugins":[{"type":"bridge"}]}"#).unwrap();
    let (code, text) = node.uninstall(&Host::new(), &[]);
    assert!(code == 0 && text.contains("05-vcn-native.conflist: it was not written by us"), "{text}");
    assert_eq!(node.names(), ["net.d/05-vcn-native.conflist"]);
}

#[test]
fn what_an_earlier_release_left_without_a_record_goes_too() {
    let node = Node::installed();
    fs::remove_dir_all(node.path("lib")).unwrap();
    node.executable("source/vcn-native", PORTMAP);
    let (code, text) = node.uninstall(&Host::new(), &[]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(node.names(), ["bin/portmap"]);
}

#[test]
fn a_link_to_our_configuration_is_not_left_leading_nowhere() {
    let node = Node::installed();
    fs::rename(node.conflist(), node.path("net.d/real")).unwrap();
    symlink("real", node.conflist()).unwrap();
    let (code, text) = node.uninstall(&Host::new(), &[]);
    assert_eq!(code, 0, "{text}");
    assert!(!node.path("net.d/real").exists() && fs::symlink_metadata(node.conflist()).is_err());

    let node = Node::installed();
    fs::rename(node.conflist(), node.path("outside")).unwrap();
    symlink(node.path("outside"), node.conflist()).unwrap();
    assert_eq!(node.uninstall(&Host::new(), &[]).0, 0);
    assert!(fs::symlink_metadata(node.conflist()).is_err() && node.path("outside").exists(), "outside nothing is ours");
}

#[test]
fn what_cannot_be_removed_is_named_and_remembered_for_the_next_run() {
    let node = Node::installed();
    fs::remove_file(node.path("bin/vcn-native")).unwrap();
    fs::create_dir(node.path("bin/vcn-native")).unwrap();
    let (code, text) = node.uninstall(&Host::new(), &[]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("failed: reading ") && text.contains("status: failed"), "{text}");
    assert!(node.path("lib/installer.json").exists());
    fs::remove_dir(node.path("bin/vcn-native")).unwrap();
    assert_eq!(node.uninstall(&Host::new(), &[]).0, 0);
    assert!(node.knows_nothing());
}
