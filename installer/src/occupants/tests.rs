//! What shows that pods live on a node, and what shows nothing.

use std::path::PathBuf;

use tempfile::TempDir;

use super::*;
use crate::fixture;
use crate::observed::conf_files;

struct Node {
    directory: TempDir,
    settings: Settings,
}

impl Node {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let settings = fixture::settings_in(directory.path());
        fs::create_dir_all(settings.cni_cache_dir.join("results")).unwrap();
        fs::create_dir_all(&settings.cni_conf_dir).unwrap();
        let node = Self { directory, settings };
        node.write("net.d/10-oci.conflist", r#"{"name":"oke","plugins":[{"type":"oci-ipvlan"}]}"#);
        node
    }

    fn write(&self, name: &str, text: &str) {
        let path: PathBuf = self.directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn look(&self) -> Occupants {
        Occupants::look(&self.settings, &conf_files(&self.settings.cni_conf_dir).unwrap())
    }
}

#[test]
fn a_node_without_pods_of_its_network_is_free() {
    let node = Node::new();
    node.write("cache/results/podman-0123-eth0", "{}");
    assert_eq!(node.look(), Occupants::None);
}

#[test]
fn what_the_runtime_remembers_shows_a_pod() {
    for name in ["oke-0123-eth0", "oci-0123-eth0"] {
        let node = Node::new();
        node.write(&format!("cache/results/{name}"), "");
        assert!(matches!(node.look(), Occupants::Some(what) if what.ends_with(name)));
    }
}

#[test]
fn a_pipe_of_okes_name_is_not_waited_for() {
    let node = Node::new();
    let conflist = node.settings.cni_conf_dir.join("10-oci.conflist");
    fs::remove_file(&conflist).unwrap();
    nix::unistd::mkfifo(&conflist, nix::sys::stat::Mode::S_IRWXU).unwrap();
    node.write("cache/results/oci-0123-eth0", "");
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(node.look()));
    let found = receiver.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
    assert!(matches!(found, Occupants::Some(what) if what.ends_with("oci-0123-eth0")));
}

#[test]
fn an_address_in_use_shows_a_pod() {
    let node = Node::new();
    node.write("shm/used/10.0.32.7", "");
    node.write("shm/used/10.0.32.8", "");
    assert!(matches!(node.look(), Occupants::Some(what) if what.ends_with("used/10.0.32.7 and 1 more")));
}

#[test]
fn what_cannot_be_looked_at_is_unknown() {
    let node = Node::new();
    fs::remove_dir_all(&node.settings.cni_cache_dir).unwrap();
    assert!(matches!(node.look(), Occupants::Unknown(why) if why.contains("cache")));
    node.write("cache", "a file");
    assert!(matches!(node.look(), Occupants::Unknown(_)));
}

#[test]
fn once_ours_is_in_place_pods_are_ours() {
    let node = Node::new();
    node.write("cache/results/oci-0123-eth0", "");
    node.write("net.d/05-vcn-native.conflist", r#"{"plugins":[{"type":"vcn-native"}]}"#);
    assert_eq!(node.look(), Occupants::None);
}
