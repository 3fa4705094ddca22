//! Which kernel settings of a link a policy may name: `ipv4.rp_filter`, `ipv6.neigh.gc_stale_time`.

use crate::keys::{OUTSIDE, is_of_agent};
use crate::refusal::Refusal;
use crate::value::Form::{self, Number};

const INT: i64 = i32::MAX as i64;

/// The keys, with the families that have them. Those of neighbours have bounds within which the gateway is still found: a wrong one
/// cuts a node off only when the present entry expires, after all probes have passed.
const KEYS: &[(&str, &str, Form)] = &[
    ("accept_dad", "6", Number(-1, 2)),
    ("accept_local", "4", Number(0, 1)),
    ("accept_ra", "6", Number(0, 2)),
    ("accept_ra_defrtr", "6", Number(0, 1)),
    ("accept_ra_pinfo", "6", Number(0, 1)),
    ("accept_redirects", "46", Number(0, 1)),
    ("arp_accept", "4", Number(0, 2)),
    ("arp_announce", "4", Number(0, 2)),
    ("arp_filter", "4", Number(0, 1)),
    ("arp_ignore", "4", Number(0, 8)),
    ("arp_notify", "4", Number(0, 1)),
    ("autoconf", "6", Number(0, 1)),
    ("dad_transmits", "6", Number(0, 10)),
    ("disable_ipv6", "6", Number(0, 1)),
    ("forwarding", "46", Number(0, 1)),
    ("hop_limit", "6", Number(1, 255)),
    ("log_martians", "4", Number(0, 1)),
    ("neigh.base_reachable_time_ms", "46", Number(1_000, 3_600_000)),
    ("neigh.gc_stale_time", "46", Number(1, INT)),
    ("neigh.mcast_solicit", "46", Number(1, 100)),
    ("neigh.retrans_time_ms", "46", Number(100, 10_000)),
    ("neigh.ucast_solicit", "46", Number(1, 100)),
    ("neigh.unres_qlen_bytes", "46", Number(4_096, INT)),
    ("proxy_arp", "4", Number(0, 1)),
    ("proxy_ndp", "6", Number(0, 1)),
    ("route_localnet", "4", Number(0, 1)),
    ("rp_filter", "4", Number(0, 2)),
    ("secure_redirects", "4", Number(0, 1)),
    ("send_redirects", "4", Number(0, 1)),
    ("src_valid_mark", "4", Number(0, 1)),
    ("use_tempaddr", "6", Number(-1, 2)),
];

const CONFIGURED: Refusal = Refusal {
    reason: "the agent sets it on this link, and pods' traffic depends on it",
    next_step: "Select links that the agent does not configure.",
};

const MTU: Refusal = Refusal { reason: "it is the link's MTU", next_step: "Use settings.links[].mtu." };

/// Checks a setting of a link; `is_configured` says whether the agent configures the link.
///
/// # Errors
/// If a policy may not set it.
pub fn check(key: &str, value: &str, is_configured: bool) -> Result<(), Refusal> {
    let (family, name) = split(key).ok_or(OUTSIDE)?;
    if name == "mtu" {
        return Err(MTU);
    }
    let found = KEYS.iter().find(|(known, families, _)| *known == name && families.contains(family));
    let (_, _, form) = found.ok_or(OUTSIDE)?;
    if is_configured && is_of_agent(name) {
        return Err(CONFIGURED);
    }
    form.check(value)
}

/// Whether the agent sets a setting on links that it configures.
pub fn is_configured(key: &str) -> bool {
    split(key).is_some_and(|(_, name)| is_of_agent(name))
}

/// The path of a link's setting below /proc/sys: `net/ipv4/conf/ens5/rp_filter`.
pub fn path(link: &str, key: &str) -> Option<String> {
    let (family, name) = split(key)?;
    Some(match name.strip_prefix("neigh.") {
        Some(name) => format!("net/ipv{family}/neigh/{link}/{name}"),
        None => format!("net/ipv{family}/conf/{link}/{name}"),
    })
}

/// All keys in their text form, for documents.
pub fn all() -> impl Iterator<Item = String> {
    KEYS.iter().flat_map(|(name, families, _)| families.chars().map(move |family| format!("ipv{family}.{name}")))
}

fn split(key: &str) -> Option<(char, &str)> {
    let rest = key.strip_prefix("ipv")?;
    let (family, name) = rest.split_once('.')?;
    let family = ['4', '6'].into_iter().find(|known| family == known.to_string())?;
    Some((family, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_of_the_agent_is_allowed_on_other_links_only() {
        for (key, value, other, own) in [
            ("ipv4.rp_filter", "2", true, false),
            ("ipv6.accept_ra", "0", true, false),
            ("ipv6.accept_ra_defrtr", "0", true, false),
            ("ipv4.arp_ignore", "1", true, false),
            ("ipv6.disable_ipv6", "1", true, false),
            ("ipv4.neigh.gc_stale_time", "120", true, true),
            ("ipv4.neigh.ucast_solicit", "0", false, false),
            ("ipv6.neigh.mcast_solicit", "0", false, false),
            ("ipv4.neigh.retrans_time_ms", "2147483647", false, false),
            ("ipv6.dad_transmits", "0", true, true),
            ("ipv4.rp_filter", "3", false, false),
            ("ipv6.rp_filter", "1", false, false),
            ("ipv6.mtu", "9000", false, false),
            ("ipv5.forwarding", "1", false, false),
            ("forwarding", "1", false, false),
            ("ipv4.../mtu", "1", false, false),
        ] {
            assert_eq!(check(key, value, false).is_ok(), other, "{key}={value}");
            assert_eq!(check(key, value, true).is_ok(), own, "{key}={value} on the agent's link");
        }
        for key in all() {
            assert_ne!(check(&key, "", false), Err(OUTSIDE), "{key}");
        }
    }

    #[test]
    fn path_names_the_link_whatever_its_name() {
        assert_eq!(path("ens5.100", "ipv4.rp_filter").unwrap(), "net/ipv4/conf/ens5.100/rp_filter");
        assert_eq!(path("ens5", "ipv6.neigh.gc_stale_time").unwrap(), "net/ipv6/neigh/ens5/gc_stale_time");
        assert_eq!(path("ens5", "mtu"), None);
    }
}
