//! How much memory deleting conntrack entries takes. A program of its own, because the peak is that of the process.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, its helper functions too")]

#[path = "kernel/conntrack/tracked.rs"]
mod tracked;

use netlink::conntrack::ConntrackSocket;
use tracked::{exchange, flood, fresh, ip};

/// The most memory that this process has ever had.
fn memory_peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[test]
fn forgetting_many_connections_needs_memory_for_a_few() {
    let netns = fresh(&["10.0.1.7/32", "10.0.1.8/32", "10.0.1.9/32"]);
    flood(&netns, "10.0.1.7", "10.0.1.8", 40_000);
    exchange(&netns, "10.0.1.8", "10.0.1.9");
    let before = memory_peak();
    let delete = |address| {
        let deleted = netns
            .run(ConntrackSocket::open)
            .unwrap()
            .unwrap()
            .delete_by_addresses(&[ip(address)].into(), || true)
            .unwrap();
        deleted.connections
    };
    let deleted = delete("10.0.1.7");
    assert!(deleted >= 40_000, "{deleted}");
    // As keys they are 10 MB.
    let taken = memory_peak().saturating_sub(before);
    assert!(taken < 4 << 20, "{taken} bytes");
    assert_eq!(delete("10.0.1.9"), 1, "another's stayed");
}
