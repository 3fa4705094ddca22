//! Where faults happen: a node with a pod that lives through all of them, and what must be true after each.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use host_harness::{Call, Families, PATIENCE, assert_success, name, settings, within};
use ipam::{BootTime, FreedAddress};
use serde_json::{Value, json};
use vcn::{Family, POD_GATEWAY_V6};

use crate::faults::traced::Run;
use crate::node::{Node, Pod, host_link};
use crate::surroundings::crowd;

pub(crate) struct Scene {
    pub(crate) node: Node,
    resident: Pod,
    answer: Value,
    before: Vec<String>,
}

/// The addresses in cooldown at some time, oldest first.
pub(crate) struct CooldownSnapshot {
    at: BootTime,
    freed: Vec<FreedAddress>,
}

/// How a run ended that something befell.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    Success,
    /// One answer that says what went wrong.
    Error,
    /// It gave no answer.
    Died,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let node = Node::new(Families::Dual);
        // Enough for each case to get addresses that no pod has had.
        node.enlarge(&[]);
        crowd::tables(&node);
        let resident = Pod::new("resident");
        let answer = node.add(&resident);
        settle(&node, &host_link(&answer));
        // Its addresses are in cooldown.
        let earlier = Pod::new("earlier");
        node.add(&earlier);
        node.del(&earlier);
        let before = everything(&node);
        Self { node, resident, answer, before }
    }

    /// A verb about a pod; GC by a runtime that knows the resident only, STATUS of the node.
    pub(crate) fn run(&self, verb: &str, pod: &Pod) -> Run<'_> {
        let mut conf = self.node.conf("1.1.0");
        let mut environment = vec![("CNI_COMMAND", verb.to_owned())];
        if verb == "GC" {
            conf["cni.dev/valid-attachments"] = json!([{"containerID": "resident", "ifname": "eth0"}]);
        } else if verb != "STATUS" {
            environment.push(("CNI_CONTAINERID", pod.id.clone()));
            environment.push(("CNI_NETNS", pod.path().to_str().unwrap().to_owned()));
        }
        if verb == "CHECK" {
            conf["prevResult"] = self.answer.clone();
        }
        Run { node: &self.node, environment, conf }
    }

    /// The calls of an undisturbed ADD into a namespace that was prepared.
    pub(crate) fn calls_of_add(&self, below: Option<&'static str>, prepare: fn(&Pod)) -> Vec<Call> {
        let pod = Pod::new("pod");
        prepare(&pod);
        self.run("ADD", &pod).calls(below)
    }

    /// A pod that has run for so long that GC would take it.
    pub(crate) fn old_pod(&self, case: &str) -> Pod {
        let pod = Pod::new("pod");
        let output = self.run("ADD", &pod).plain();
        assert!(output.status.success(), "{case}: {}", String::from_utf8_lossy(&output.stdout));
        self.node.age();
        pod
    }

    /// As if a person had emptied the state directory but for the pools.
    pub(crate) fn lose_record(&self) {
        // An ADD that died before it came to it has not made it again.
        self.node.sh(&format!("cd {}; rm -rf allocations.json allocations", self.node.state.path().display()));
    }

    pub(crate) const fn resident(&self) -> &Pod {
        &self.resident
    }

    /// The addresses in cooldown now.
    pub(crate) fn cooldown(&self) -> CooldownSnapshot {
        CooldownSnapshot { at: BootTime::now().unwrap(), freed: self.node.store().freed().unwrap() }
    }

    /// Checks that the addresses in cooldown then still are, since the same time. Returns the addresses freed since.
    pub(crate) fn freed_since(&self, then: &CooldownSnapshot, case: &str) -> Vec<IpAddr> {
        let freed = self.node.store().freed().unwrap();
        let (kept, new) = freed.split_at(then.freed.len().min(freed.len()));
        assert_eq!(kept, then.freed, "{case}: addresses in cooldown before");
        assert!(new.iter().all(|freed| freed.at >= then.at && !freed.forgotten), "{case}: {new:?}");
        new.iter().map(|freed| freed.address).collect()
    }

    /// No address was freed except some or all of one attachment.
    pub(crate) fn assert_only_one_freed_since(&self, then: &CooldownSnapshot, case: &str) {
        let families: Vec<_> = self.freed_since(then, case).into_iter().map(Family::of).collect();
        let of_one = [&[][..], &[Family::Ipv4], &[Family::Ipv6], &Family::ALL];
        assert!(of_one.contains(&families.as_slice()), "{case}: {families:?}");
    }

    /// Links, routes, rules, neighbours, nft, settings and files are as before, and the record holds the resident alone.
    pub(crate) fn assert_as_before(&self, case: &str) {
        self.assert_same(&everything(&self.node), case);
    }

    /// The same, but for an index that was written and not put in its place: the next one is written over it.
    pub(crate) fn assert_as_before_killed(&self, case: &str) {
        let mut now = everything(&self.node);
        now.retain(|line| !line.ends_with("/allocations.json.new"));
        self.assert_same(&now, case);
    }

    /// The network is as before, whatever became of files and record.
    pub(crate) fn assert_network_as_before(&self, case: &str) {
        let mut now = everything(&self.node);
        now.retain(|line| !line.starts_with("file "));
        self.assert_none_differs(&now, case);
    }

    fn assert_same(&self, now: &[String], case: &str) {
        self.assert_none_differs(now, case);
        let held = self.node.allocations().allocations;
        assert!(held.iter().all(|held| held.key.container_id.as_str() == "resident"), "{case}: {held:?}");
    }

    fn assert_none_differs(&self, now: &[String], case: &str) {
        // Where the record was lost, it need not have been made again.
        let gone: Vec<_> =
            self.before.iter().filter(|line| !now.contains(line) && !line.starts_with("file ")).collect();
        let left: Vec<_> = now.iter().filter(|line| !self.before.contains(line)).collect();
        assert!(gone.is_empty() && left.is_empty(), "{case}: gone {gone:#?}, left {left:#?}");
    }

    /// DEL of a pod succeeds and leaves nothing.
    pub(crate) fn delete(&self, pod: &Pod, case: &str) {
        let output = self.run("DEL", pod).plain();
        assert!(output.status.success(), "{case}: {}", String::from_utf8_lossy(&output.stdout));
        self.assert_as_before_killed(case);
    }

    /// Whether a pod reaches the router of its VNIC by both families.
    pub(crate) fn works(&self, pod: &Pod) -> bool {
        let held = self.node.allocations().allocations;
        let Some(allocation) = held.iter().find(|held| held.key.container_id.as_str() == pod.id) else { return false };
        let number = if allocation.addresses[0].vnic_link.as_str() == "ens5" { 0 } else { 1 };
        [format!("10.0.{number}.1"), format!("2001:db8:{number}::1")].iter().all(|router| pod.reaches(router))
    }

    /// The resident has lived through it.
    pub(crate) fn assert_resident_works(&self) {
        assert!(self.works(&self.resident));
        assert_success(&self.run("CHECK", &self.resident).plain());
    }
}

/// How a run ended. Two answers, or one that no runtime understands, are a failure of the test.
pub(crate) fn end(output: &std::process::Output, case: &str) -> End {
    if output.status.success() {
        return End::Success;
    }
    if output.stdout.is_empty() {
        return End::Died;
    }
    let error: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{case}: {error}: {}", String::from_utf8_lossy(&output.stdout)));
    assert!(error["code"].as_u64().is_some_and(|code| code > 0), "{case}: {error}");
    assert!(error["msg"].as_str().is_some_and(|text| !text.is_empty()), "{case}: {error}");
    End::Error
}

/// Waits until the resident's link has the link-local address that the kernel gives it, and has checked it for duplicates.
/// The address comes some time after the link, with routes of its own.
fn settle(node: &Node, link: &str) {
    let ready = || {
        node.in_host(|socket| {
            let index = socket.index_of(&name(link)).unwrap();
            let addresses = socket.addresses(Some(index)).unwrap();
            addresses.iter().any(|address| address.address.ip() != IpAddr::V6(POD_GATEWAY_V6) && !address.tentative)
        })
    };
    assert!(within(PATIENCE, ready), "{link} has no address of its own");
}

/// All that a CNI operation could change on a host, of any owner.
fn everything(node: &Node) -> Vec<String> {
    let mut lines = node.snapshot();
    node.host
        .run(|| {
            for family in Family::ALL {
                let folder = if family == Family::Ipv4 { "ipv4" } else { "ipv6" };
                for part in ["conf", "neigh"] {
                    settings(&Path::new("/proc/sys/net").join(folder).join(part), &mut lines);
                }
            }
        })
        .unwrap();
    // Without counters: packets may come at any time.
    lines.push(node.sh("nft -s -a list ruleset"));
    files(node.state.path(), &mut lines);
    lines
}

/// The files of the state directory, the agent's to the byte; records of runs are not state.
fn files(folder: &Path, lines: &mut Vec<String>) {
    for path in sorted(folder) {
        if path.is_dir() {
            files(&path, lines);
        } else if !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("verbs.log")) {
            lines.push(format!("file {}", path.display()));
            if path.ends_with("pools.json") {
                lines.push(format!("pools {}", fs::read_to_string(&path).unwrap()));
            }
        }
    }
}

fn sorted(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    entries
}
