//! Uninstalled in a network namespace, under what `manifests/uninstall` gives: none of our files and objects is left, and everything else
//! is as it was.

mod cluster;
mod forwarding;
pub(crate) mod kernel;
mod links;
mod log;
mod record;
mod refused;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use cni::AttachmentKey;
use ipam::{Allocation, BootId, BootTime, FamilyPool, PodRecord, Pools, Store, VnicPool};
use sandbox::Container;
use vcn::{Mtu, PerFamily, Purpose, TableId};

use crate::node::{FLANNEL, FOREIGN, INSTALL, Node, PLUGIN, PORTMAP};
use kernel::Host;

impl Node {
    /// Runs what the pod of `manifests/uninstall` runs.
    fn uninstall(&self, host: &Host, more: &[&str]) -> (i32, String) {
        self.uninstall_in(&Container::uninstaller().unwrap(), host, more)
    }

    fn uninstall_in(&self, container: &Container, host: &Host, more: &[&str]) -> (i32, String) {
        host.inside(|| self.run_in(&self.placed(container.clone()), more))
    }

    /// Whether only the mounted directories are left.
    fn knows_nothing(&self) -> bool {
        self.entries("run").is_empty() && self.entries("lib").is_empty()
    }

    fn installed() -> Self {
        let node = Self::new();
        node.executable("bin/portmap", PORTMAP);
        let (code, text) = node.run(&INSTALL);
        assert_eq!(code, 0, "{text}");
        node
    }

    /// One pod's address, as the plugin would record it.
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
            attach: None,
            families: PerFamily { ipv4: Some(pool), ipv6: None },
        };
        let pools = Pools::new(boot.clone(), vec![vnic], None);
        let key: AttachmentKey = "vcn-native/0123abcd/eth0".parse().unwrap();
        let pod = Some(PodRecord { namespace: "default".into(), name: "web-0".into(), uid: None });
        let request = Allocation { pod, ..Allocation::requested(key.clone(), "vcn012345678901".parse().unwrap()) };
        Store::new(&state, boot)
            .update(|all| {
                all.reserve(&pools, request, BootTime::now()?)?;
                all.commit(&key)
            })
            .unwrap();
    }
}

#[test]
fn uninstall_removes_our_files_and_keeps_all_other_state() {
    let node = Node::new();
    node.executable("bin/portmap", PORTMAP);
    fs::write(node.path("net.d/87-podman.conflist"), r#"{"plugins":[{"type":"bridge"}]}"#).unwrap();
    let host = Host::new();
    let (files, kernel) = (node.snapshot(), host.snapshot());
    assert_eq!(node.run(&INSTALL).0, 0);
    host.populate(&node.path("lib"));
    fs::create_dir_all(node.path("run/allocations")).unwrap();
    for ours in ["run/pools.json", "lib/tables.json", "lib/drop-ins.json", "bin/.oke-cni-installer.00.tmp"] {
        fs::write(node.path(ours), "{}").unwrap();
    }
    for ours in [vcn::NPN_COPY_FILE, vcn::REPORTED_CONDITIONS_FILE, vcn::CONTROLLER_RULES_FILE] {
        fs::write(node.path("lib").join(ours), "{}").unwrap();
    }
    fs::create_dir_all(node.path("lib/captures/uid/logs")).unwrap();
    fs::write(node.path("lib/captures/uid/logs/kubelet.service.log"), "text").unwrap();
    fs::write(node.path("lib/nativepodnetwork.json"), "an operator's").unwrap();
    assert_ne!(host.snapshot(), kernel);

    let (code, text) = node.uninstall(&host, &["--dry-run", "--force"]);
    assert!(code == 0 && text.contains("would: remove ") && text.contains("status: planned\n"), "{text}");
    assert_ne!(host.snapshot(), kernel);

    let (code, text) = node.uninstall(&host, &["--force"]);
    assert!(code == 0 && text.contains("status: removed"), "{text}");
    assert_eq!((node.snapshot(), host.snapshot()), (files, kernel));
    assert_eq!((node.entries("run"), node.entries("lib")), (vec![], vec!["nativepodnetwork.json".to_owned()]));

    let (code, text) = node.uninstall(&host, &[]);
    assert!(code == 0 && !text.contains("did: "), "it may be repeated: {text}");
}

/// The only way without a container, for a host that no cluster reaches any more.
#[test]
fn command_on_a_host_removes_the_directories_too() {
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
    assert_eq!((node.names(), host.snapshot()), (vec!["bin/portmap".to_owned()], kernel));
    assert!(!node.path("run").exists() && !node.path("lib").exists());
}

#[test]
fn files_from_before_us_come_back_to_the_byte() {
    let node = Node::new();
    node.executable("bin/vcn-native", "a plugin of that name\0\u{fffd}");
    fs::set_permissions(node.path("bin/vcn-native"), fs::Permissions::from_mode(0o711)).unwrap();
    fs::write(node.conflist(), FOREIGN).unwrap();
    fs::write(node.path("net.d/10-flannel.conflist"), FLANNEL).unwrap();
    node.executable("source/vnic-attach", PLUGIN);
    let before = node.snapshot();
    let chain = ["--signal-node-label", "false", "--vnic-attach", "on"];
    assert_eq!(node.run(&chain).0, 0);
    assert_eq!(node.run(&INSTALL).0, 0);
    assert_eq!(node.run(&[&chain[2..], &["--pod-network", "none"]].concat()).0, 0);
    assert!(fs::read_to_string(node.path("net.d/00-vnic-attach.conflist")).unwrap().contains("flannel"));
    node.executable("source/vcn-native", &format!("{PLUGIN}# another"));
    assert_eq!(node.run(&INSTALL).0, 0);
    let (code, text) = node.uninstall(&Host::new(), &[]);
    assert_eq!(code, 0, "{text}");
    let plain = |snapshot: crate::node::Snapshot| {
        snapshot.into_iter().map(|(path, (contents, mode, ..))| (path, contents, mode)).collect::<Vec<_>>()
    };
    assert_eq!(plain(node.snapshot()), plain(before));
}

#[test]
fn copied_configuration_goes_although_the_record_is_lost() {
    let node = Node::new();
    node.executable("source/vnic-attach", PLUGIN);
    fs::write(node.path("net.d/10-flannel.conflist"), FLANNEL).unwrap();
    node.run(&["--signal-node-label", "false", "--vnic-attach", "on"]);
    assert!(node.path("net.d/00-vnic-attach.conflist").exists());
    fs::write(node.path("lib/installer.json"), "{").unwrap();
    let (code, text) = node.uninstall(&Host::new(), &[]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(fs::read_to_string(node.path("net.d/10-flannel.conflist")).unwrap(), FLANNEL);
    assert_eq!(node.names(), ["net.d/10-flannel.conflist"]);
}

#[test]
fn directory_named_by_mistake_keeps_other_files() {
    let node = Node::installed();
    fs::create_dir_all(node.path("run/containerd")).unwrap();
    let others =
        ["run/containerd/containerd.sock", "run/agent.conf", "run/agent.lock.1", "run/pools.jsonl", "lib/before.1"];
    others.iter().for_each(|name| fs::write(node.path(name), "foreign").unwrap());
    let ours = ["pools.json", "pools.json.new", "allocations.lock", "verbs.log.1", "allocations.json.damaged"];
    ours.iter().for_each(|name| fs::write(node.path("run").join(name), "{}").unwrap());
    let (code, text) = node.uninstall(&Host::new(), &[]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(node.entries("run"), ["agent.conf", "agent.lock.1", "containerd", "pools.jsonl"]);
    assert_eq!(node.entries("lib"), ["before.1"]);
    assert!(node.path("run/containerd/containerd.sock").exists());
}

#[test]
fn foreign_files_with_our_names_are_kept() {
    for installed in [true, false] {
        let node = if installed { Node::installed() } else { Node::new() };
        fs::write(node.conflist(), FOREIGN).unwrap();
        node.executable("bin/vcn-native", "foreign");
        let (code, text) = node.uninstall(&Host::new(), &[]);
        assert!(code == 0 && text.contains("05-vcn-native.conflist: it was not written by us"), "{text}");
        assert!(text.contains("left: ") && text.contains("bin/vcn-native: it is not what we installed"), "{text}");
        assert_eq!(fs::read_to_string(node.conflist()).unwrap(), FOREIGN);
        assert_eq!(fs::read_to_string(node.path("bin/vcn-native")).unwrap(), "foreign");
    }
    let node = Node::installed();
    fs::write(node.conflist(), "{\"name").unwrap();
    assert_eq!(node.uninstall(&Host::new(), &[]).0, 0);
    assert_eq!(node.names(), ["bin/portmap"], "our damaged configuration stops the runtime: it is removed");
}

#[test]
fn binaries_of_other_releases_go_without_a_record() {
    let node = Node::installed();
    fs::remove_dir_all(node.path("lib")).unwrap();
    node.executable("source/vcn-native", &format!("{PLUGIN}# another"));
    let (code, text) = node.uninstall(&Host::new(), &[]);
    assert_eq!((code, node.names()), (0, vec!["bin/portmap".to_owned()]), "{text}");
}

#[test]
fn file_that_cannot_be_backed_up_is_not_replaced() {
    let node = Node::new();
    fs::create_dir_all(node.path("lib")).unwrap();
    fs::write(node.path("lib/before"), "no directory").unwrap();
    fs::write(node.conflist(), FOREIGN).unwrap();
    let (code, text) = node.run(&INSTALL);
    assert!(code == 1 && text.contains("[write-failed]"), "{text}");
    assert_eq!(fs::read_to_string(node.conflist()).unwrap(), FOREIGN);
}

/// A runtime may still use it, and its target has none of our names.
#[test]
fn link_in_place_of_our_configuration_stays_and_is_a_failure() {
    let node = Node::installed();
    fs::rename(node.conflist(), node.path("net.d/real")).unwrap();
    symlink("real", node.conflist()).unwrap();
    let (code, text) = node.uninstall(&Host::new(), &[]);
    assert!(code == 1 && text.contains("it is a symbolic link to real; replace it by a regular file"), "{text}");
    assert!(node.path("net.d/real").exists() && node.conflist().is_symlink());
    fs::remove_file(node.conflist()).unwrap();
    assert_eq!(node.uninstall(&Host::new(), &[]).0, 0);
}

#[test]
fn failure_is_reported_and_the_next_run_completes_it() {
    let node = Node::installed();
    fs::remove_file(node.path("bin/vcn-native")).unwrap();
    fs::create_dir(node.path("bin/vcn-native")).unwrap();
    let (code, text) = node.uninstall(&Host::new(), &[]);
    assert!(code == 1 && text.contains("failed: reading ") && text.contains("status: failed"), "{text}");
    assert!(node.path("lib/installer.json").exists());
    fs::remove_dir(node.path("bin/vcn-native")).unwrap();
    assert_eq!(node.uninstall(&Host::new(), &[]).0, 0);
    assert!(node.knows_nothing());
}
