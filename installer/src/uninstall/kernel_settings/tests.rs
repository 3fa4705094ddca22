//! Settings are noted once, and restored only if no other program changed or needs them.

use std::fs;
use std::path::PathBuf;

use ipam::BootId;
use serde_json::Value;
use tempfile::TempDir;

use super::*;

/// A data directory and a directory like /proc/sys.
struct Node {
    directory: TempDir,
}

impl Node {
    fn new() -> Self {
        let node = Self { directory: tempfile::tempdir().unwrap() };
        fs::create_dir_all(node.path("sys/net/ipv4")).unwrap();
        node.set("2");
        node
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn roots(&self) -> KernelRoots {
        KernelRoots { sysctl: self.path("sys"), host: self.path("") }
    }

    fn set(&self, value: &str) {
        fs::write(self.path("sys/net/ipv4/ip_forward"), format!("{value}\n")).unwrap();
    }

    fn note(&self, boot: &BootId, before: &str, set: &str) {
        let key = "net/ipv4/ip_forward".to_owned();
        let change = SettingChange { key, before: before.to_owned(), set: set.to_owned() };
        note_settings(&self.path("lib"), boot, &[change]).unwrap();
    }

    /// The value after restoring, and what was left.
    fn restored(&self) -> (String, Vec<String>) {
        self.restored_next_to(&[OtherNetworks::default()])
    }

    fn restored_next_to(&self, others: &[OtherNetworks]) -> (String, Vec<String>) {
        let mut removal = Removal { applied: true, ..Removal::default() };
        restore(&self.path("lib"), &self.roots(), others, &mut removal);
        assert!(removal.failures.is_empty(), "{removal}");
        (fs::read_to_string(self.path("sys/net/ipv4/ip_forward")).unwrap().trim().to_owned(), removal.left)
    }
}

#[test]
fn accept_ra_stays_while_forwarding_stays() {
    let (node, boot) = (Node::new(), BootId::current().unwrap());
    let value = node.path("sys/net/ipv6/conf/ens3/accept_ra");
    fs::create_dir_all(value.parent().unwrap()).unwrap();
    fs::write(&value, "2\n").unwrap();
    let key = "net/ipv6/conf/ens3/accept_ra".to_owned();
    let change = SettingChange { key, before: "1".to_owned(), set: "2".to_owned() };
    note_settings(&node.path("lib"), &boot, &[change]).unwrap();
    let now = || fs::read_to_string(&value).unwrap().trim().to_owned();
    let left = "setting net/ipv6/conf/ens3/accept_ra: 10-flannel.conflist is of another pod network";
    let came_since = [OtherNetworks::default(), OtherNetworks::named("10-flannel.conflist is of another pod network")];
    assert_eq!(node.restored_next_to(&came_since).1, [left]);
    assert_eq!(now(), "2");
    assert_eq!((node.restored().1, now()), (vec![], "1".to_owned()));
}

#[test]
fn setting_that_another_program_changed_stays() {
    let (node, boot) = (Node::new(), BootId::current().unwrap());
    node.note(&boot, "0", "1");
    let left = vec!["setting net/ipv4/ip_forward: another program changed it to 2 since".to_owned()];
    assert_eq!(node.restored(), ("2".to_owned(), left));
}

#[test]
fn first_noted_value_of_this_boot_is_restored() {
    let (node, boot) = (Node::new(), BootId::current().unwrap());
    node.note(&BootId::from_text("another"), "0", "2");
    assert_eq!(node.restored().0, "2");
    node.note(&boot, "5", "1");
    node.note(&boot, "7", "2");
    assert_eq!(node.restored(), ("5".to_owned(), vec![]));
}

#[test]
fn notes_keep_fields_of_a_later_version() {
    let (node, boot) = (Node::new(), BootId::current().unwrap());
    node.note(&boot, "0", "2");
    let path = node.path("lib/sysctls.json");
    let text = fs::read_to_string(&path)
        .unwrap()
        .replacen('{', "{ \"later\": [1],", 1)
        .replace("\"set\"", "\"l\": 1, \"set\"");
    fs::write(&path, &text).unwrap();
    node.note(&boot, "1", "2");
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    node.note(&boot, "1", "3");
    let kept: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!((&kept["later"][0], &kept["settings"]["net/ipv4/ip_forward"]["l"]), (&1.into(), &1.into()));
    fs::write(&path, "{").unwrap();
    node.note(&boot, "4", "2");
    assert_eq!(node.restored().0, "4", "damaged notes are replaced");
}

#[test]
fn only_network_settings_are_written() {
    let (node, boot) = (Node::new(), BootId::current().unwrap());
    for key in ["kernel/core_pattern", "net/../kernel/core_pattern", "net//x"] {
        let change = SettingChange { key: key.to_owned(), before: "|x".to_owned(), set: "core".to_owned() };
        note_settings(&node.path("lib"), &boot, &[change]).unwrap();
    }
    assert_eq!(node.restored().1.len(), 3);
}

/// The link is in use, as the primary one always is.
#[test]
fn options_of_links_that_policies_set_are_restored() {
    let (node, boot, netns) = (Node::new(), BootId::current().unwrap(), netlink::Netns::create().unwrap());
    let setting = |option: &str, before: &str, set: &str| PolicySetting {
        key: format!("link/ens3/{option}"),
        before: before.to_owned(),
        set: set.to_owned(),
        mark: PolicyMark { policy: "web".to_owned(), requested: set.to_owned(), ..PolicyMark::default() },
    };
    host_harness::sh(
        &netns,
        "ip link add ens3 type veth peer name router; ip link set ens3 up mtu 9000 txqueuelen 500
         ip addr add 10.0.10.7/24 dev ens3; ip route add default via 10.0.10.1
         echo 60 > /proc/sys/net/ipv4/neigh/ens3/gc_stale_time",
    );
    let options = ["mtu", "txQueueLength", "ipv4.neigh.gc_stale_time", "offloads.tso"].map(|it| it.parse().unwrap());
    let read = || {
        let sysctls = Sysctls::default();
        let read = |option: &LinkOption| read_link_option(&"ens3".parse().unwrap(), option, &sysctls).unwrap().unwrap();
        netns.run(|| options.each_ref().map(read)).unwrap()
    };
    let list = "tx-tcp-segmentation,tx-tcp6-segmentation";
    netns
        .run(|| {
            let link = "ens3".parse().unwrap();
            write_link_option(&link, &LinkOption::Offload("tso"), "false", &Sysctls::default()).unwrap();
        })
        .unwrap();
    assert_eq!(read(), ["9000", "500", "60", "false"]);
    let settings = [
        setting("mtu", "1500", "9000"),
        setting("txQueueLength", "1000", "400"),
        setting("ipv4.neigh.gc_stale_time", "90", "60"),
        setting("offloads.tso", list, "false"),
        setting("ring.rx", "256", "512"),
    ];
    note_policy_settings(&node.path("lib"), &boot, &settings).unwrap();
    let mut removal = Removal { applied: true, ..Removal::default() };
    let others = [OtherNetworks::default()];
    netns.run(|| restore(&node.path("lib"), &KernelRoots::default(), &others, &mut removal)).unwrap();
    assert_eq!(read(), ["1500", "500", "90", list], "{removal}");
    assert_eq!(removal.left.len(), 2, "another program's queue length, and a ring that the device lacks: {removal}");
}

/// Settings of node policies, with the mark of one.
fn noted(settings: &[[&str; 3]]) -> Vec<PolicySetting> {
    let mark = PolicyMark { policy: "u".to_owned(), cluster: "c".to_owned(), ..PolicyMark::default() };
    let setting = |[key, before, set]: &[&str; 3]| PolicySetting {
        key: (*key).to_owned(),
        before: (*before).to_owned(),
        set: (*set).to_owned(),
        mark: mark.clone(),
    };
    settings.iter().map(setting).collect()
}

#[test]
fn settings_of_policies_are_restored_wherever_they_are() {
    let (node, boot) = (Node::new(), BootId::current().unwrap());
    let files = [
        ("sys/vm/dirty_bytes", "9000000"),
        ("sys/vm/dirty_ratio", "0"),
        ("sys/vm/swappiness", "40"),
        ("sys/net/ipv4/tcp_rmem", "1\t2\t3"),
        ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never"),
    ];
    for (file, value) in files {
        fs::create_dir_all(node.path(file).parent().unwrap()).unwrap();
        fs::write(node.path(file), format!("{value}\n")).unwrap();
    }
    let settings = noted(&[
        ["vm/dirty_bytes", "0", "9000000"],
        ["vm/dirty_ratio", "20", "0"],
        ["vm/swappiness", "60", "10"],
        ["vm/max_map_count", "65530", "262144"],
        ["net/ipv4/tcp_rmem", "4 5 6", "1 2 3"],
        ["transparent_hugepage/enabled", "always", "madvise"],
    ]);
    note_policy_settings(&node.path("lib"), &boot, &settings).unwrap();
    let left = [
        "setting vm/max_map_count: its folder is not mounted here; a reboot restores it",
        "setting vm/swappiness: another program changed it to 40 since",
    ];
    assert_eq!(node.restored().1, left);
    let now: Vec<String> =
        files.iter().map(|(file, _)| fs::read_to_string(node.path(file)).unwrap().trim().to_owned()).collect();
    assert_eq!(now, ["0", "20", "40", "4 5 6", "always"]);
}

/// An agent of 0.2.0 keeps what it does not know.
#[test]
fn notes_of_policies_outlive_a_downgrade() {
    let (node, boot) = (Node::new(), BootId::current().unwrap());
    let settings = noted(&[["vm/swappiness", "60", "10"]]);
    note_policy_settings(&node.path("lib"), &boot, &settings).unwrap();
    node.note(&boot, "0", "1");
    assert_eq!(policy_settings(&node.path("lib"), &boot).unwrap(), settings);
    let mut later = settings.clone();
    (later[0].before, later[0].set) = ("10".to_owned(), "20".to_owned());
    note_policy_settings(&node.path("lib"), &boot, &later).unwrap();
    let noted = policy_settings(&node.path("lib"), &boot).unwrap();
    assert_eq!((noted[0].before.as_str(), noted[0].set.as_str()), ("60", "20"), "the first value is the one before us");
    forget_policy_settings(&node.path("lib"), &boot, &["vm/swappiness".to_owned(), "net/ipv4/ip_forward".to_owned()])
        .unwrap();
    let text = fs::read_to_string(node.path("lib").join(FILE)).unwrap();
    assert!(text.contains("ip_forward") && !text.contains("swappiness"), "{text}");
    note_policy_settings(&node.path("lib"), &boot, &later).unwrap();
    let other = BootId::from_text("another");
    assert_eq!(policy_settings(&node.path("lib"), &other).unwrap(), []);
}
