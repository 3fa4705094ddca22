//! Files, units and reservations of a NodePolicy: the closed list of paths, and the size of an object with files.

use api::node_policy::{HOST_FOLDERS, HostUnit, OBJECT_WITH_FILES_MAX};
use serde_json::{Value, json};

use crate::cluster::{client, try_create};
use crate::node_policies::{filled, settings, stored_with_largest_status};

pub(crate) const PATH: &str = "/etc/sysctl.d/90-web.conf";

fn file(more: Value) -> Value {
    let mut file = json!({ "path": PATH, "content": "vm.swappiness = 10\n" });
    file.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    settings(json!({ "files": [file] }))
}

pub(crate) fn thresholds() -> Value {
    json!({ "memory.available": "500Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%", "imagefs.available": "15%",
        "imagefs.inodesFree": "5%" })
}

/// A file in each folder, and a drop-in of each unit.
fn paths() -> Vec<String> {
    let folders = HOST_FOLDERS.iter().map(|folder| format!("{}/90-web{}", folder.path, folder.suffix));
    folders.chain(HostUnit::ALL.iter().map(|unit| format!("/etc/systemd/system/{unit}.d/90-web.conf"))).collect()
}

/// Paths outside the closed list.
const OTHER_PATHS: &[&str] = &[
    "",
    "x.conf",
    "/etc/passwd",
    "/etc/sysctl.conf",
    "/etc/sysctl.d/",
    "/etc/sysctl.d/.conf",
    "/etc/sysctl.d/.x.conf",
    "/etc/sysctl.d/x.conf.bak",
    "/etc/sysctl.d/a b.conf",
    "/etc/sysctl.d/a\nb.conf",
    "/etc/sysctl.d/a.conf\n",
    "\n/etc/sysctl.d/a.conf",
    "/etc/sysctl.d/$HOME.conf",
    "/etc/sysctl.d/%n.conf",
    "/etc/sysctl.d/../cron.d/x.conf",
    "/etc/sysctl.d/sub/x.conf",
    "/etc//sysctl.d/x.conf",
    "/etc/sysctlXd/x.conf",
    "/etc/sysctl.d/xXconf",
    "/etc/systemd/system/sshd.service.d/x.conf",
    "/etc/systemd/system/kubelet.service",
    "/etc/cron.d/x.conf",
    "/etc/systemd/system/kubelet.service.d/x.service",
    "/etc/modprobe.d/x.rules",
    "/ETC/sysctl.d/x.conf",
];

/// Files that break a rule: the field and the rule's words, which are empty for the schema's own bounds.
pub(crate) fn broken_files() -> Vec<(Value, &'static str, &'static str)> {
    let large = [0, 1].map(|number| json!({ "path": format!("/etc/sysctl.d/{number}.conf"), "content": format!("{}\n", "x".repeat(4096)) }));
    let (field, own) =
        ("spec.settings.files[].path", "OKE or this project writes a file of this name: use another one");
    vec![
        (file(json!({ "path": "/etc/kubernetes/kubelet.conf.d/90-oke-node-manager.conf" })), field, own),
        (file(json!({ "path": "/etc/systemd/system/kubelet.service.d/00-default.conf" })), field, own),
        (
            settings(json!({ "files": large })),
            "spec.settings.files",
            "are too large: all contents have at most 8192 bytes",
        ),
        (
            settings(with_files(16, 8192, "x", 900)),
            "spec.settings",
            "is too large: settings with files take at most 10752 bytes as JSON",
        ),
        (
            settings(json!({ "restart": ["crio.service"], "sysctls": { "vm.swappiness": "1" } })),
            "spec.settings.restart",
            "restart needs files or kubelet",
        ),
    ]
}

/// The same, of reservations and units.
pub(crate) fn broken_reservations() -> Vec<(Value, &'static str, &'static str)> {
    let kubelet = |kubelet: Value| settings(json!({ "kubelet": kubelet }));
    let mut incomplete = thresholds();
    incomplete.as_object_mut().unwrap().remove("imagefs.inodesFree");
    let mut unknown = thresholds();
    unknown["containerfs.available"] = json!("5%");
    let signals = "needs all of memory.available, nodefs.available, nodefs.inodesFree, imagefs.available and imagefs.inodesFree, \
                   and nothing else but pid.available";
    vec![
        (kubelet(json!({})), "spec.settings.kubelet", "needs systemReserved, kubeReserved or evictionHard"),
        (
            kubelet(json!({ "kubeReserved": { "gpu": "1" } })),
            "spec.settings.kubelet",
            "a kubelet reserves cpu, ephemeral-storage, memory and pid only",
        ),
        (kubelet(json!({ "evictionHard": incomplete })), "spec.settings.kubelet.evictionHard", signals),
        (kubelet(json!({ "evictionHard": unknown })), "spec.settings.kubelet.evictionHard", signals),
        (kubelet(json!({ "systemReserved": { "cpu": "-1" } })), "spec.settings.kubelet.systemReserved.cpu", ""),
        (kubelet(json!({ "systemReserved": { "cpu": "1\n2" } })), "spec.settings.kubelet.systemReserved.cpu", ""),
        (settings(json!({ "files": [], "restart": ["sshd.service"] })), "spec.settings.restart[]", ""),
        (
            settings(
                json!({ "kubelet": { "systemReserved": { "cpu": "1" } }, "restart": ["kubelet.service", "kubelet.service"] }),
            ),
            "spec.settings.restart",
            "",
        ),
    ]
}

#[tokio::test]
async fn file_of_a_policy_is_in_the_closed_list_and_unique() {
    let client = client().await;
    for path in paths() {
        let accepted = try_create(&client, &file(json!({ "path": path }))).await;
        assert!(accepted.is_ok(), "{path}: {:?}", accepted.err());
    }
    let long = format!("/etc/sysctl.d/{}.conf", "x".repeat(60));
    for path in OTHER_PATHS.iter().copied().chain([long.as_str()]) {
        let complaints = try_create(&client, &file(json!({ "path": path }))).await.unwrap_err();
        assert!(complaints.iter().any(|(at, _)| at == "spec.settings.files[].path"), "{path:?}: {complaints:?}");
    }
    let twice = file(json!({}))["spec"]["settings"]["files"][0].clone();
    let complaints = try_create(&client, &settings(json!({ "files": [twice, twice] }))).await.unwrap_err();
    assert!(complaints.iter().any(|(_, words)| words.starts_with("Duplicate value")), "{complaints:?}");
    let many: Vec<Value> =
        (0..17).map(|number| json!({ "path": format!("/etc/sysctl.d/{number}.conf"), "content": "#\n" })).collect();
    assert!(try_create(&client, &settings(json!({ "files": many }))).await.is_err(), "17 files");
}

#[tokio::test]
async fn file_of_a_policy_has_a_permitted_mode_and_lines_of_text() {
    let client = client().await;
    for (name, values) in [
        ("mode", vec![json!("0755"), json!("0666"), json!("4755"), json!("644"), json!(420), json!("0644\n")]),
        (
            "content",
            vec![
                json!(""),
                json!("a"),
                json!("a\r\n"),
                json!("\u{1b}[2J\n"),
                json!("a\0\n"),
                json!("\u{e9}\n"),
                json!("a\nb"),
            ],
        ),
    ] {
        for value in values {
            let complaints = try_create(&client, &file(json!({ name: value }))).await.unwrap_err();
            let field = format!("spec.settings.files[].{name}");
            assert!(complaints.iter().any(|(at, _)| *at == field), "{name} {value}: {complaints:?}");
        }
    }
}

/// Settings with so many files, whose contents have so many bytes in all, and kernel settings of about so many.
fn with_files(count: usize, bytes: usize, of: &str, sysctls: usize) -> Value {
    let content = |number: usize| {
        let length = bytes / count + usize::from(number < bytes % count);
        format!("{}\n", of.repeat(length - 1))
    };
    let name = "n".repeat(40);
    let file = |number: usize| {
        json!({ "path": format!("/etc/systemd/system/oracle-cloud-agent.service.d/{name}{number:02}.conf"),
        "content": content(number), "mode": "0640" })
    };
    let mut settings = filled(sysctls);
    settings["files"] = (0..count).map(file).collect();
    settings
}

#[tokio::test]
async fn largest_node_policy_with_files_takes_24_kilobytes_in_etcd() {
    let client = client().await;
    // Characters that JSON writes with one, two and six bytes.
    for (name, bytes, of, sysctls) in
        [("x", 8192, "x", 80), ("q", 3900, "\"", 80), ("l", 1200, "<", 80), ("s", 5000, "x", 3060)]
    {
        let settings_of = |bytes: usize| with_files(16, bytes, of, sysctls);
        let (mut most, step) = (bytes, 16);
        while try_create(&client, &settings(settings_of(most + step))).await.is_ok() {
            most += step;
        }
        let stored = stored_with_largest_status(&name.repeat(63), settings_of(most)).await;
        assert!(stored <= OBJECT_WITH_FILES_MAX, "{name}: {stored} bytes");
        println!("{name}: {most} bytes of contents, {stored} bytes in etcd");
    }
}
