//! All there is on a host, as other programs show it: a line for each thing.

use std::fs;

use host_harness::{differences, foreign_lines, text_of};
use serde_json::Value;

use crate::node::Node;

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
            let mut lines = foreign_lines(|_, _| true);
            // Counters are left out, other people's packets may come at any time.
            for command in ["nft -s -a list ruleset", "tc -d -j class show dev vcn0"] {
                lines.extend(text_of(command).lines().map(|line| format!("{command}: {line}")));
            }
            for line in fs::read_to_string("/proc/thread-self/net/igmp6").unwrap().lines() {
                // Index, link, group, users; what follows are timers.
                let groups: Vec<_> = line.split_whitespace().take(4).collect();
                lines.push(format!("igmp6: {}", groups.join(" ")));
            }
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
        differences(&self.0, &other.0)
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
