//! Captures on the controller's channel: what a tar has, that tcpdump reads its packets, and that nothing is left where it must not be.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ::channel::{Reply, Request};
use api::capture::{AGENT_CAPTURES_PATH, CaptureProgress};
use nix::mount::{MsFlags, mount};
use oke_node_agent::captures::logs::{UnitLog, read, write};
use serde_json::{Value, json};

use crate::bundle_stream::{resident, with_client};
use crate::channel::Channel;
use crate::node::{Node, wait_for};

const LIMIT: Duration = Duration::from_secs(60);
const UID: &str = "0b0e7c1e-5b1c-4f6e-8d8e-000000000001";
/// The bytes by which a capture may raise the agent's memory. A released agent has 12 MiB at rest, and may have 40 MiB with a capture.
const GROWTH_MAX: u64 = 12 << 20;

type Entries = BTreeMap<String, Vec<u8>>;

fn start(channel: &Channel, uid: &str, parts: Value) -> Reply {
    let mut start = json!({ "uid": uid, "ttlSeconds": 3600 });
    start.as_object_mut().unwrap().extend(parts.as_object().unwrap().clone());
    post(channel, &json!({ "start": start }))
}

fn post(channel: &Channel, body: &Value) -> Reply {
    channel.request(&Request::post(AGENT_CAPTURES_PATH, body.to_string().into_bytes()))
}

fn progress(channel: &Channel, uid: &str) -> (u16, CaptureProgress) {
    let reply = channel.request(&Request::get(format!("{AGENT_CAPTURES_PATH}/{uid}")));
    (reply.status, serde_json::from_slice(&reply.body).unwrap_or_default())
}

fn wait_complete(channel: &Channel, uid: &str) -> CaptureProgress {
    wait_for("the capture", || progress(channel, uid).1.is_complete, || channel.agent.log());
    progress(channel, uid).1
}

/// Its status, and its entries.
fn fetch(channel: &Channel, uid: &str) -> (u16, Entries) {
    let path = format!("{AGENT_CAPTURES_PATH}/{uid}/file");
    let (status, tar) = with_client(channel, async |client, peer| {
        let mut reply = client.open(peer, Request::get(path), LIMIT).await.unwrap();
        let mut tar = Vec::new();
        while reply.status() == 200
            && let Some(bytes) = reply.next(LIMIT).await.unwrap()
        {
            tar.extend_from_slice(&bytes);
        }
        (reply.status(), tar)
    });
    let mut archive = tar::Archive::new(tar.as_slice());
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        (entry.path().unwrap().display().to_string(), content)
    });
    (status, entries.collect())
}

fn text(entries: &Entries, name: &str) -> String {
    String::from_utf8(entries.get(name).unwrap_or_else(|| panic!("{name} of {:?}", entries.keys())).clone()).unwrap()
}

fn folder(node: &Node) -> PathBuf {
    node.path("lib").join(vcn::CAPTURES_FOLDER)
}

/// What is kept on the node.
fn kept(node: &Node) -> Vec<String> {
    let names = fs::read_dir(folder(node)).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

/// What tcpdump reads, a line per packet.
fn tcpdump(packets: &[u8]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("packets.pcap");
    fs::write(&path, packets).unwrap();
    // It may read a file of root only as root.
    let output = Command::new("tcpdump").args(["-Z", "root", "-nn", "-tt", "-x", "-r"]).arg(&path).output().unwrap();
    let (out, error) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success() && !error.contains("truncated"), "{error}");
    out
}

/// Sends datagrams on the node's loopback until it is dropped.
struct Traffic<'a> {
    node: &'a Node,
    port: u16,
    payload: &'static [u8],
    burst: u32,
}

impl Traffic<'_> {
    fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        let end = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                self.node.inside(|| {
                    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                    while !end.load(Ordering::Relaxed) {
                        for _ in 0..self.burst {
                            // Refused by the port that nothing listens on.
                            let _ = socket.send_to(self.payload, ("127.0.0.1", self.port));
                        }
                        thread::sleep(Duration::from_millis(10));
                    }
                });
            });
            let result = work();
            end.store(true, Ordering::Relaxed);
            result
        })
    }
}

/// A file system of its own for the agent's files, of which most is free.
fn small_disk(node: &Node) {
    let path = node.path("lib");
    fs::create_dir_all(&path).unwrap();
    mount(Some("tmpfs"), &path, Some("tmpfs"), MsFlags::empty(), Some("size=4g,mode=0700")).unwrap();
}

fn resize_disk(node: &Node, size: &str) {
    mount(None::<&str>, &node.path("lib"), None::<&str>, MsFlags::MS_REMOUNT, Some(format!("size={size}").as_str()))
        .unwrap();
}

#[test]
fn capture_has_state_logs_and_headers_without_secrets() {
    let channel = Channel::prepared(None, small_disk);
    let node = &channel.scene.cluster.node;
    let rules = r#"[{"note": "password=hunter2"}] Authorization: Bearer s3cr3t-t0ken http://me:hunter2@10.0.0.1/"#;
    fs::write(node.path("lib").join(vcn::REPORTED_CONDITIONS_FILE), rules).unwrap();
    let traffic = Traffic { node, port: 4242, payload: b"a p4yl0ad that stays on the node", burst: 5 };
    let other = Traffic { node, port: 4343, payload: b"a p4yl0ad of another port", burst: 5 };
    let progress = traffic.during(|| {
        other.during(|| {
            let packets = json!({ "seconds": 3, "protocol": "UDP", "host": "127.0.0.1", "port": 4242 });
            let reply = start(&channel, UID, json!({ "state": true, "logs": true, "packets": packets }));
            assert_eq!(reply.status, 200, "{reply:?}");
            assert_eq!(fetch(&channel, UID).0, 409, "it is not complete");
            wait_complete(&channel, UID)
        })
    });
    assert!(progress.packets > 100 && progress.error.is_none(), "{progress:?}");
    // As the Pod of the task does.
    let journal = "kubelet[1]: token: hunter2\nkubelet[1]: started\n";
    let logs = folder(node).join(UID).join("logs");
    let (log, described) = read(journal.as_bytes()).unwrap();
    write(&logs, "kubelet.service", &log, &described).unwrap();
    let unread = UnitLog { error: "journalctl ended with exit-code 1".to_owned(), ..UnitLog::default() };
    write(&logs, "crio.service", b"", &unread).unwrap();
    let (status, entries) = fetch(&channel, UID);
    assert_eq!(status, 200);
    for (name, content) in &entries {
        let content = String::from_utf8_lossy(content);
        for secret in ["hunter2", "s3cr3t-t0ken", "p4yl0ad"] {
            assert!(!content.contains(secret), "{name} has {secret}");
        }
    }
    let lines = tcpdump(&entries["capture/packets.pcap"]);
    let packets = lines.lines().filter(|line| line.contains(" IP ")).count() as u64;
    assert_eq!(packets, progress.packets, "{lines}");
    assert!(lines.lines().filter(|line| line.contains(" IP ")).all(|line| line.contains(".4242: UDP")), "{lines}");
    assert!(text(&entries, "capture/links.txt").contains("1 lo\n"));
    assert_eq!(
        text(&entries, "capture/logs/kubelet.service.log"),
        "kubelet[1]: token: [redacted]\nkubelet[1]: started\n"
    );
    assert!(text(&entries, "capture/state/agent/status.json").contains("\"running\":true"));
    let readme = text(&entries, "capture/README.txt");
    for part in [
        "headers without payload; 0 lost",
        "  state: PEM blocks 0, JSON web tokens 0, credentials in URLs 1, bearer and basic authorizations 1, values named password, \
         secret, token and the like 1\n",
        "  logs/kubelet.service.log: PEM blocks 0, JSON web tokens 0, credentials in URLs 0, bearer and basic authorizations 0, values \
         named password, secret, token and the like 1\n",
        "Missing:\n  logs/crio.service.log: journalctl ended with exit-code 1\n",
    ] {
        assert!(readme.contains(part), "{part}\n{readme}");
    }
    // The channel answers 200 for one that is gone, too.
    for _ in 0..2 {
        assert_eq!(post(&channel, &json!({ "remove": { "uid": UID } })).status, 200);
    }
    assert_eq!((kept(node), self::progress(&channel, UID).0), (Vec::new(), 404));
}

/// `make bench` measures the agent at rest.
#[test]
fn capture_of_whole_packets_under_load_takes_little_memory() {
    let channel = Channel::prepared(None, small_disk);
    let node = &channel.scene.cluster.node;
    let traffic = Traffic { node, port: 4242, payload: &[b'x'; 1400], burst: 20 };
    assert_eq!(channel.request(&Request::get("/v1/summary")).status, 200);
    let before = resident(&channel);
    let (progress, memory) = traffic.during(|| {
        let packets = json!({ "seconds": 30, "sizeMiB": 64, "payload": true });
        assert_eq!(start(&channel, UID, json!({ "packets": packets })).status, 200);
        let mut memory = 0;
        while !progress(&channel, UID).1.is_complete {
            memory = memory.max(resident(&channel));
            thread::sleep(Duration::from_millis(200));
        }
        (wait_complete(&channel, UID), memory)
    });
    assert!(progress.packets > 10_000 && progress.bytes > 10 << 20, "{progress:?}");
    let (_, entries) = fetch(&channel, UID);
    let memory = memory.max(resident(&channel));
    assert!(memory <= before + GROWTH_MAX, "{before} bytes before, {memory} while it captured");
    let packets = &entries["capture/packets.pcap"];
    assert!(packets.len() as u64 == progress.bytes && packets.len() <= 64 << 20);
    let lines = tcpdump(packets);
    assert_eq!(
        lines.lines().filter(|line| line.contains(" IP ") || line.contains(" ARP")).count() as u64,
        progress.packets
    );
    assert!(text(&entries, "capture/README.txt").contains("whole, NOT REDACTED"));
    let CaptureProgress { packets, lost_packets, bytes, .. } = progress;
    println!("{packets} packets, {lost_packets} lost, {bytes} bytes; {before} bytes resident before, {memory} at most");
}

#[test]
fn nothing_is_left_of_a_capture_that_ends_early() {
    let mut channel = Channel::prepared(None, small_disk);
    let long = json!({ "packets": { "seconds": 300 } });
    // Two at most, and the same request twice is one capture.
    let [two, three] = [2, 3].map(|last| format!("{}{last}", &UID[..UID.len() - 1]));
    for (uid, expected) in [(UID, 200), (UID, 200), (two.as_str(), 200), (three.as_str(), 429)] {
        assert_eq!(start(&channel, uid, long.clone()).status, expected, "{uid}");
    }
    assert_eq!(start(&channel, UID, json!({ "state": true })).status, 409);
    let node = &channel.scene.cluster.node;
    assert_eq!(kept(node).len(), 2);
    for uid in ["", "..", "a/b", "../../etc", &"a".repeat(64), "a\u{0}b"] {
        assert_eq!(start(&channel, uid, long.clone()).status, 400, "{uid:?}");
    }
    // Removed while it runs.
    assert_eq!(post(&channel, &json!({ "remove": { "uid": two } })).status, 200);
    assert_eq!(kept(node), [UID]);
    for (parts, expected) in [
        (json!({}), 400),
        (json!({ "packets": { "interface": "no-link" } }), 400),
        (json!({ "packets": { "interface": "../lo" } }), 400),
        (json!({ "packets": { "host": "not an address" } }), 400),
    ] {
        assert_eq!(start(&channel, "other", parts.clone()).status, expected, "{parts}");
    }
    // Its time is over.
    assert_eq!(post(&channel, &json!({ "start": { "uid": three, "state": true, "ttlSeconds": 1 } })).status, 200);
    wait_for("its end", || kept(&channel.scene.cluster.node) == [UID], || channel.agent.log());
    // The agent is killed, or the node is.
    channel.restart();
    let node = &channel.scene.cluster.node;
    assert_eq!((kept(node), progress(&channel, UID).0), (Vec::new(), 404));
    // The disk becomes full while it runs.
    assert_eq!(start(&channel, UID, long.clone()).status, 200);
    resize_disk(node, "1g");
    wait_for("the failure", || progress(&channel, UID).1.error.is_some(), || channel.agent.log());
    assert_eq!(kept(node), Vec::<String>::new());
    assert_eq!(fetch(&channel, UID).0, 410);
    let reply = start(&channel, &three, long);
    assert_eq!(reply.status, 507, "{reply:?}");
    assert!(String::from_utf8_lossy(&reply.body).contains("of 1024 MiB are free"), "{reply:?}");
}
