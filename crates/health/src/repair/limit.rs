//! The limits of the kernel that a repair may raise.

/// A limit that can be raised without harm: it costs only memory that is in use.
#[derive(Debug, PartialEq, Eq)]
pub struct Limit {
    /// The name of the limit, as in rules.
    pub name: &'static str,
    /// The settings below /proc/sys. A signal does not say which family is full, so each of them is raised, from its own value.
    pub settings: &'static [&'static str],
    /// The signal of its use, in percent.
    pub(super) used: &'static str,
    /// The signal of what is lost when it is used up.
    pub(super) lost: &'static str,
    pub(super) cap: u64,
    /// Bytes of memory for each, which may take 2 % of the memory.
    pub(super) bytes: u64,
}

/// All limits that can be raised.
pub const LIMITS: &[Limit] = &[
    Limit {
        name: "connections",
        settings: &["net/netfilter/nf_conntrack_max"],
        used: "conntrack_use",
        lost: "conntrack_drops",
        cap: 2 * 1024 * 1024,
        bytes: 400,
    },
    Limit {
        name: "neighbours",
        // gc_thresh3 is the limit. From gc_thresh2 on, the kernel removes entries early, so it rises with the limit.
        settings: &[
            "net/ipv4/neigh/default/gc_thresh1",
            "net/ipv4/neigh/default/gc_thresh2",
            "net/ipv4/neigh/default/gc_thresh3",
            "net/ipv6/neigh/default/gc_thresh1",
            "net/ipv6/neigh/default/gc_thresh2",
            "net/ipv6/neigh/default/gc_thresh3",
        ],
        used: "neighbour_use",
        lost: "neighbour_overflows",
        // A /16 subnet.
        cap: 65_536,
        bytes: 1024,
    },
];

/// Whether a rule about a signal may repair.
pub(crate) fn is_repairable(signal: &str) -> bool {
    LIMITS.iter().any(|limit| [limit.used, limit.lost].contains(&signal))
}
