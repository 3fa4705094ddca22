//! All there is on a host, as other programs show it: a line for each thing.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

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
];

/// What is listed as text.
const CONNECTIONS: [&str; 2] = ["conntrack -L -o extended -f ipv4", "conntrack -L -o extended -f ipv6"];

/// What a command says that succeeds.
pub fn text_of(command: &str) -> String {
    let output = Command::new("sh").args(["-c", command]).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What `ip`, `tc`, `bridge` and `conntrack` list of the calling thread's namespace, and all settings, without what changes
/// by itself. `revise` may change an entry of a list before it is a line, given the list's command, or leave it out.
pub fn foreign_lines(mut revise: impl FnMut(&str, &mut Value) -> bool) -> Vec<String> {
    let mut lines = Vec::new();
    for command in LISTS {
        let Ok(Value::Array(mut entries)) = serde_json::from_str(&text_of(command)) else { continue };
        entries.retain_mut(|entry| {
            without_timers(entry);
            !is_passing(command, entry) && revise(command, entry)
        });
        lines.extend(entries.iter().map(|entry| format!("{command}: {entry}")));
    }
    for command in CONNECTIONS {
        let text = text_of(command);
        // The host's own questions for multicast groups are connections, too.
        let lasting = text.lines().filter(|line| !line.contains("dst=224.") && !line.contains("dst=ff02:"));
        lines.extend(lasting.map(|line| format!("{command}: {}", without_timer(line))));
    }
    settings(Path::new("/proc/sys/net"), &mut lines);
    lines
}

/// What is in one and not in the other, for people.
pub fn differences(before: &[String], now: &[String]) -> Vec<String> {
    let missing = before.iter().filter(|line| !now.contains(line)).map(|line| format!("- {line}"));
    missing.chain(now.iter().filter(|line| !before.contains(line)).map(|line| format!("+ {line}"))).collect()
}

/// Entries that come and go: a neighbour for each multicast group that the host reports, and what a bridge learns of
/// its ports from that. The loopback link has a neighbour for connections of the host to itself.
fn is_passing(command: &str, entry: &Value) -> bool {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or("-");
    match command {
        "ip -d -j neigh show nud noarp" => {
            text("dev") == "lo" || text("dst").starts_with("ff02:") || text("dst").starts_with("224.")
        }
        "bridge -d -j fdb show" => text("state").is_empty(),
        _ => false,
    }
}

/// A bridge tells the time of its timers.
fn without_timers(entry: &mut Value) {
    for data in ["/linkinfo/info_data", "/linkinfo/info_slave_data"] {
        if let Some(fields) = entry.pointer_mut(data).and_then(Value::as_object_mut) {
            fields.retain(|name, _| !name.ends_with("_timer"));
        }
    }
}

/// A connection's fifth word is the time it has left.
fn without_timer(line: &str) -> String {
    line.split_whitespace().enumerate().filter(|(at, _)| *at != 4).map(|(_, word)| word).collect::<Vec<_>>().join(" ")
}

/// The settings in a folder below `/proc/sys`.
pub fn settings(folder: &Path, lines: &mut Vec<String>) {
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            settings(&path, lines);
        // Connections are listed one by one.
        } else if let (false, Ok(value)) = (path.ends_with("nf_conntrack_count"), fs::read_to_string(&path)) {
            lines.push(format!("sysctl: {}={}", path.display(), value.trim()));
        }
    }
}
