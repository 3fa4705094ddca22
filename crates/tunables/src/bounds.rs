//! Bounds that depend on the node: what the kernel chose at this boot, from the memory it has, and the memory itself. The agent
//! checks them, because the controller knows neither.

use crate::refusal::Refusal;

/// Keys whose numbers must have at least this percentage of the boot's: with less, connections or programs of the node fail.
const LEAST_PERCENT: &[(&str, u64)] = &[
    ("fs.file-max", 50),
    ("net.ipv4.neigh.default.gc_thresh3", 100),
    ("net.ipv4.tcp_mem", 50),
    ("net.ipv4.udp_mem", 50),
    ("net.ipv6.neigh.default.gc_thresh3", 100),
    ("net.netfilter.nf_conntrack_max", 100),
];

/// `vm.min_free_kbytes` may have this percentage of the memory: the kernel ends programs to keep that much free.
const MIN_FREE_PERCENT: u64 = 5;

const BELOW_BOOT: Refusal = Refusal {
    reason: "the value is too small for this node, compared with the one that the kernel chose at boot",
    next_step: "Name a larger value, or select other nodes.",
};
const ABOVE_MEMORY: Refusal = Refusal {
    reason: "the value is more than 5 percent of the node's memory",
    next_step: "Name a smaller value, or select larger nodes.",
};

/// Checks a value on a node: `boot` is the setting's value before any policy of this boot, `memory` is in kibibytes.
///
/// # Errors
/// If the value would harm this node.
pub fn check(name: &str, value: &str, boot: &str, memory: u64) -> Result<(), Refusal> {
    let number = |text: &str| text.parse::<u64>().unwrap_or_default();
    if name == "vm.min_free_kbytes" {
        return if number(value.trim()) <= memory * MIN_FREE_PERCENT / 100 { Ok(()) } else { Err(ABOVE_MEMORY) };
    }
    let Some((_, percent)) = LEAST_PERCENT.iter().find(|(key, _)| *key == name) else { return Ok(()) };
    let mut pairs = value.split_whitespace().zip(boot.split_whitespace());
    let is_enough = |(value, boot): (&str, &str)| number(value) >= number(boot) / 100 * percent;
    if pairs.all(is_enough) { Ok(()) } else { Err(BELOW_BOOT) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_compared_with_boot_and_memory() {
        for (name, good, bad, boot) in [
            ("vm.min_free_kbytes", "50000", "50001", "1"),
            ("net.ipv4.tcp_mem", "50000 60000 70000", "1 1 1", "100000 120000 140000"),
            ("net.ipv4.tcp_mem", "50000 60000 70000", "50000 60000 69999", "100000 120000 140000"),
            ("net.netfilter.nf_conntrack_max", "262144", "16384", "262144"),
            ("fs.file-max", "9223372036854775807", "8192", "9223372036854775807"),
        ] {
            assert_eq!(check(name, good, boot, 1_000_000), Ok(()), "{name}");
            assert!(check(name, bad, boot, 1_000_000).is_err(), "{name}");
        }
        assert_eq!(check("vm.swappiness", "0", "60", 1), Ok(()));
        assert!(LEAST_PERCENT.iter().all(|(key, _)| crate::keys::Key::named(key).is_some()));
    }
}
