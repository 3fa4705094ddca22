//! Lists in which the host's own address is not the first one.

use super::*;

fn ip(last: &str) -> IpAddr {
    format!("2603:c020:0:33::{last}").parse().unwrap()
}

fn ips<C: FromIterator<IpAddr>>(lasts: &[&str]) -> C {
    lasts.iter().map(|last| ip(last)).collect()
}

/// What is chosen of a list, where pods have ::20 to ::2f; the sets are what the NativePodNetwork names, what was before, and what
/// is held.
fn chosen(listed: &[&str], host: Option<&str>, before: &[&str], held: &[&str]) -> IpAddr {
    let listed: Vec<IpAddr> = ips(listed);
    let at = SubnetAddressing {
        subnet: "2603:c020:0:33::/64".parse().unwrap(),
        router: "fe80::1".parse().unwrap(),
        address: listed[0],
        others: listed[1..].to_vec(),
    };
    let pods = vec!["2603:c020:0:33::20/124".parse().unwrap()];
    choose(&at, &AddressHints { host: host.map(ip), before: ips(before), pods: &pods, held: &ips(held) })
}

#[test]
fn named_address_precedes_previous_one_precedes_first_listed() {
    let listed = ["9", "20", "8", "7"];
    assert_eq!(chosen(&listed, Some("7"), &["8"], &[]), ip("7"));
    assert_eq!(chosen(&listed, None, &["8"], &[]), ip("8"));
    assert_eq!(chosen(&listed, None, &[], &[]), ip("9"));
}

#[test]
fn unlisted_address_is_chosen_when_pods_may_use_all_listed() {
    assert_eq!(chosen(&["20", "7"], Some("6"), &["5"], &[]), ip("7"));
    assert_eq!(chosen(&["20", "21"], Some("6"), &["5"], &[]), ip("6"));
    assert_eq!(chosen(&["20", "21"], None, &["5"], &[]), ip("5"));
}

#[test]
fn pod_address_is_not_chosen_while_there_is_another() {
    assert_eq!(chosen(&["20", "7"], None, &[], &[]), ip("7"), "for pods");
    assert_eq!(chosen(&["9", "7"], None, &[], &["9"]), ip("7"), "a pod's");
    assert_eq!(
        chosen(&["9", "8", "7"], Some("9"), &["8"], &["9", "8"]),
        ip("7"),
        "it is a pod's, although it is named"
    );
    assert_eq!(chosen(&["20", "21"], None, &[], &["20"]), ip("21"));
}

#[test]
fn previous_address_stays_in_a_pod_block() {
    assert_eq!(chosen(&["22", "20", "7"], None, &["20"], &[]), ip("20"), "no pod can have had it");
    assert_eq!(chosen(&["20"], None, &[], &[]), ip("20"));
    assert_eq!(chosen(&["20"], None, &[], &["20"]), ip("20"));
}

#[test]
fn previous_address_outside_pod_blocks_is_preferred() {
    assert_eq!(chosen(&["22", "7"], None, &["22", "7"], &[]), ip("7"));
    assert_eq!(chosen(&["22", "20"], None, &["20", "22"], &[]), ip("20"));
}
