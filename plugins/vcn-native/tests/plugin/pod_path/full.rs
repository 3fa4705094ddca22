//! Disks that are full: no pod comes, and all pods may go, whatever became of the index meanwhile.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::node::{Node, Pod};

/// A node whose state is on a disk of its own, of 256 KiB in memory, and one VNIC of which serves pods.
struct SmallDisk {
    place: PathBuf,
    node: Node,
}

impl SmallDisk {
    fn new(addresses: &str) -> Self {
        let node = Node::with_addresses(&[addresses]);
        let (vnics, place) = (node.pools().vnics, node.state.path().to_owned());
        mount(Some("tmpfs"), &place, Some("tmpfs"), MsFlags::empty(), Some("size=256k")).unwrap();
        node.write_pools(vnics);
        Self { place, node }
    }

    /// Takes all there is, besides what was taken before.
    fn fill(&self) {
        let mut filler = OpenOptions::new().create(true).append(true).open(self.filler()).unwrap();
        while filler.write_all(&[0; 4096]).is_ok() {}
    }

    fn has_room(&self) -> bool {
        let probe = self.place.join("probe");
        let room = File::create(&probe).and_then(|mut file| file.write_all(b"1")).is_ok();
        fs::remove_file(probe).unwrap();
        room
    }

    /// Damages the index, where it is, without room for anything else.
    fn damage(&self, text: &str) {
        fs::write(self.place.join("allocations.json"), text).unwrap();
        self.fill();
        assert!(!self.has_room());
    }

    fn empty(&self) {
        fs::remove_file(self.filler()).unwrap();
    }

    fn filler(&self) -> PathBuf {
        self.place.join("filler")
    }

    fn records(&self) -> usize {
        fs::read_dir(self.place.join("allocations")).unwrap().count()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Between fork and exec, a child of another test may hold a file on it.
        umount2(self.place.as_path() as &Path, MntFlags::MNT_DETACH).unwrap();
    }
}

#[test]
fn del_without_room_for_index_succeeds_and_starts_cooldown() {
    for damage in ["", "{\"version\":1,"] {
        let disk = SmallDisk::new("10.0.0.8/30");
        let node = &disk.node;
        let lives = Pod::new("lives");
        let held = node.add(&lives)["ips"].clone();
        let before = node.snapshot();
        let pods = ["a", "b"].map(Pod::new);
        pods.iter().for_each(|pod| drop(node.add(pod)));
        for (pod, left) in pods.iter().zip([2, 1]) {
            disk.damage(damage);
            node.del(pod);
            assert_eq!(disk.records(), left);
        }
        node.del(&pods[0]);
        assert_eq!(node.snapshot(), before);
        disk.damage(damage);
        assert_eq!(node.refusal("ADD", &Pod::new("early")).0, 101);
        disk.empty();
        let next = Pod::new("next");
        assert_ne!(node.add(&next)["ips"], held, "who lives keeps his address");
        let said = node.last_run("ADD").message;
        assert!(said.contains("had rested only"), "{said}");
        assert!(lives.reaches("10.0.0.1") && next.reaches("10.0.0.1"));
        assert_eq!(node.held(), 2, "all who live are on record");
    }
}

/// The record that goes makes room of a page, and the index takes three.
#[test]
fn del_without_room_for_long_index_holds_address_until_sweep() {
    let disk = SmallDisk::new("10.0.0.8/30");
    let node = &disk.node;
    let before = node.snapshot();
    let pod = Pod::new("a");
    node.add(&pod);
    let index = disk.place.join("allocations.json");
    let others: Vec<_> =
        (0..=255).map(|it| format!("another-pod-{it:08x}=10.7.7.{it},2001:db8:7:7:7:7:7:{it:x}")).collect();
    let long =
        fs::read_to_string(&index).unwrap().replace("{\"held\":\"", &format!("{{\"held\":\"{} ", others.join(" ")));
    fs::write(&index, &long).unwrap();
    disk.fill();
    node.del(&pod);
    assert_eq!((node.snapshot(), disk.records()), (before, 0));
    assert_eq!(fs::read_to_string(&index).unwrap(), long, "its address is not free");
    disk.empty();
    // As the agent does at its next reconcile, and an ADD that finds no address.
    let store = node.store();
    assert!(store.sweep().unwrap(), "a pod holds addresses without a record");
    store.reconcile_with_kernel(&[], None, None, |_| true).unwrap();
    assert!(store.held().unwrap().is_empty());
    assert!(store.freed().unwrap().iter().any(|freed| freed.address.to_string() == "10.0.0.8"));
}
