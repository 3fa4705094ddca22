//! All there is on a host, as other programs show it: a line for each thing.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::node::Node;

/// What `ip`, `tc` and `bridge` list as JSON.
const LISTS: &[&str] = &[
    "ip -d -j link show",
    "ip -d -j addr show",
    "ip -d -j -4 route show table all",
    "ip -d -j -6 route show table all",
    "ip -d -j nexthop show",
    "ip -d -j -4 rule show",
    "ip -d -j -6 rule show",
    "ip -d -j neigh show nud permanent",
    "ip -d -j neigh show nud noarp",
    "ip -d -j -4 neigh show proxy",
    "ip -d -j -6 neigh show proxy",
    "bridge -d -j fdb show",
    "tc -d -j qdisc show",
    "tc -d -j class show dev vcn0",
];

/// What is listed as text. Counters are left out, other people's packets may come at any time.
const TEXTS: &[&str] =
    &["nft -s -a list ruleset", "conntrack -L -o extended -f ipv4", "conntrack -L -o extended -f ipv6"];

/// A host as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dump(Vec<String>);

/// What our objects are recognized by: the host ends of pods' links, and pods' addresses, each with the link of its VNIC.
#[derive(Clone, Debug, Default)]
pub(crate) struct OurObjects {
    pub(crate) links: Vec<String>,
    pub(crate) addresses: Vec<(String, &'static str)>,
}

impl Dump {
    pub(crate) fn of(node: &Node) -> Self {
        let lines = node.host.run(|| {
            let mut lines = Vec::new();
            for command in LISTS {
                let list: Value = serde_json::from_str(&text_of(command)).unwrap_or(Value::Null);
                let Value::Array(mut entries) = list else { continue };
                entries.retain(|entry| !is_passing(command, entry));
                entries.iter_mut().for_each(without_timers);
                lines.extend(entries.iter().map(|entry| format!("{command}: {entry}")));
            }
            for command in TEXTS {
                let text = text_of(command);
                // The host's own questions for multicast groups are connections, too.
                let lasting = text.lines().filter(|line| !line.contains("dst=224.") && !line.contains("dst=ff02:"));
                lines.extend(lasting.map(|line| format!("{command}: {}", without_timer(line))));
            }
            for line in fs::read_to_string("/proc/thread-self/net/igmp6").unwrap().lines() {
                // Index, link, group, users; what follows are timers.
                let groups: Vec<_> = line.split_whitespace().take(4).collect();
                lines.push(format!("igmp6: {}", groups.join(" ")));
            }
            settings(Path::new("/proc/sys/net"), &mut lines);
            lines
        });
        Self(lines.unwrap())
    }

    /// Objects of other programs, in their order.
    pub(crate) fn without(&self, ours: &OurObjects) -> Self {
        Self(self.0.iter().filter(|line| !ours.owns(line)).cloned().collect())
    }

    /// What is in one and not in the other, for people.
    pub(crate) fn difference(&self, other: &Self) -> Vec<String> {
        let missing = |a: &Self, b: &Self, sign| {
            let lines = a.0.iter().filter(|line| !b.0.contains(line));
            lines.map(|line| format!("{sign} {line}")).collect::<Vec<_>>()
        };
        [missing(self, other, '-'), missing(other, self, '+')].concat()
    }

    pub(crate) fn lines(&self) -> usize {
        self.0.len()
    }
}

impl OurObjects {
    fn owns(&self, line: &str) -> bool {
        let (command, rest) = line.split_once(": ").unwrap_or_default();
        let quoted = |text: &str| rest.contains(&format!("\"{text}\""));
        self.links.iter().any(|link| line.contains(link.as_str()))
            || match command {
                "ip -d -j -4 rule show" | "ip -d -j -6 rule show" => rest.contains("\"protocol\":\"157\""),
                "ip -d -j -4 neigh show proxy" | "ip -d -j -6 neigh show proxy" => {
                    self.addresses.iter().any(|(address, vnic)| quoted(address) && quoted(vnic))
                }
                // The group by which a VNIC's link hears questions for a pod.
                "bridge -d -j fdb show" => {
                    self.groups().any(|(group, vnic)| quoted(&format!("33:33:ff:00:00:{group}")) && quoted(vnic))
                }
                "igmp6" => self
                    .groups()
                    .any(|(group, vnic)| rest.contains(&format!(" {vnic} ff0200000000000000000001ff0000{group} "))),
                _ => false,
            }
    }

    /// The last byte of each IPv6 address.
    fn groups(&self) -> impl Iterator<Item = (String, &'static str)> {
        let last = |(address, vnic): &(String, _)| Some((format!("{:0>2}", address.rsplit_once("::")?.1), *vnic));
        self.addresses.iter().filter_map(last)
    }
}

fn text_of(command: &str) -> String {
    let mut words = command.split(' ');
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What comes and goes by itself: a neighbour for each multicast group that the host reports, and what a bridge learns of
/// its ports from that.
fn is_passing(command: &str, entry: &Value) -> bool {
    match command {
        "ip -d -j neigh show nud noarp" => {
            entry["dst"].as_str().is_some_and(|to| to.starts_with("ff02:") || to.starts_with("224."))
        }
        "bridge -d -j fdb show" => entry["state"] == "",
        _ => false,
    }
}

/// Whether all links that are up are ready, and no address is being checked for duplicates: the kernel sees to both later,
/// and has more to show then.
pub(crate) fn is_settled(node: &Node) -> bool {
    let list = |command| serde_json::from_str::<Value>(&text_of(command)).unwrap();
    let (links, tentative) = node.host.run(|| (list("ip -j link show up"), list("ip -j addr show tentative"))).unwrap();
    // One that is not up is an empty object.
    let is_ready = |link: &Value| matches!(link["operstate"].as_str(), None | Some("UP" | "UNKNOWN"));
    let none = |of: &Value| of["addr_info"].as_array().is_none_or(Vec::is_empty);
    links.as_array().unwrap().iter().all(is_ready) && tentative.as_array().unwrap().iter().all(none)
}

/// A bridge tells the time of its timers.
fn without_timers(entry: &mut Value) {
    if let Some(fields) = entry.pointer_mut("/linkinfo/info_data").and_then(Value::as_object_mut) {
        fields.retain(|name, _| !name.ends_with("_timer"));
    }
    if let Some(fields) = entry.pointer_mut("/linkinfo/info_slave_data").and_then(Value::as_object_mut) {
        fields.retain(|name, _| !name.ends_with("_timer"));
    }
}

/// A conntrack entry's fifth word is the time it has left.
fn without_timer(line: &str) -> String {
    if !line.starts_with("ipv4 ") && !line.starts_with("ipv6 ") {
        return line.to_owned();
    }
    line.split_whitespace().enumerate().filter(|(at, _)| *at != 4).map(|(_, word)| word).collect::<Vec<_>>().join(" ")
}

fn settings(folder: &Path, lines: &mut Vec<String>) {
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            settings(&path, lines);
        } else if path.ends_with("nf_conntrack_count") {
            // Listed one by one.
        } else if let Ok(value) = fs::read_to_string(&path) {
            lines.push(format!("sysctl: {}={}", path.display(), value.trim()));
        }
    }
}
