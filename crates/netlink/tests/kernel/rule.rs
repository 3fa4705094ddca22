//! Policy rules against the real kernel.

use ipnetwork::IpNetwork;
use netlink::{Netns, Rule, Socket};
use vcn::{Family, IfName, Mark, Priority, TableId};

const PROTOCOL: u8 = 157;

fn network(text: &str) -> Option<IpNetwork> {
    Some(text.parse().unwrap())
}

fn rule(family: Family, priority: u32) -> Rule {
    Rule::new(family, Priority(priority), TableId(1001), PROTOCOL)
}

#[test]
fn added_rules_are_read_back_in_priority_order() {
    let netns = Netns::create().unwrap();
    let mut socket = Socket::open_in(&netns).unwrap();
    let rules = [
        Rule { to: network("10.0.1.7/32"), table: TableId::MAIN, ..rule(Family::Ipv4, 512) },
        Rule { fwmark: Some(Mark { value: 0x1000, mask: 0xf000 }), ..rule(Family::Ipv4, 1024) },
        Rule { from: network("10.0.1.7/32"), iif: Some(IfName::new("vcn1.5").unwrap()), ..rule(Family::Ipv4, 1536) },
        Rule { suppress: Some(31), ..rule(Family::Ipv4, 2000) },
        Rule { to: network("fd00::7/128"), ..rule(Family::Ipv6, 512) },
        Rule { from: network("fd00::/64"), ..rule(Family::Ipv6, 1536) },
        Rule { suppress: Some(127), ..rule(Family::Ipv6, 2000) },
    ];
    for rule in rules.iter().rev() {
        socket.add_rule(rule).unwrap();
        assert!(socket.add_rule(rule).unwrap_err().is_already_exists());
    }
    for family in Family::ALL {
        let found = socket.rules(family).unwrap();
        let expected: Vec<_> = rules.iter().filter(|rule| rule.family == family).cloned().collect();
        assert_eq!(found.iter().filter(|rule| rule.protocol == PROTOCOL).cloned().collect::<Vec<_>>(), expected);
        assert!(found.iter().all(|rule| !rule.unmodeled), "the kernel's own rules are plain: {found:?}");
    }
}

#[test]
fn deletion_spares_rules_that_differ() {
    let netns = Netns::create().unwrap();
    let mut socket = Socket::open_in(&netns).unwrap();
    for (family, from) in [(Family::Ipv4, "10.0.1.7/32"), (Family::Ipv6, "fd00::7/128")] {
        let rule = Rule { from: network(from), ..rule(family, 1536) };
        socket.add_rule(&rule).unwrap();
        let foreign = Rule { protocol: 4, ..rule.clone() };
        assert!(socket.delete_rule(&foreign).unwrap_err().is_not_found());
        socket.delete_rule(&rule).unwrap();
        assert!(socket.delete_rule(&rule).unwrap_err().is_not_found());
    }
}

#[test]
fn rule_protocol_defaults_to_0_and_unsupported_rules_are_unmodeled() {
    let netns = Netns::create().unwrap();
    let mut socket = Socket::open_in(&netns).unwrap();
    for arguments in [
        &["priority", "5", "table", "7", "protocol", "0"][..],
        &["priority", "6", "blackhole"],
        &["priority", "7", "table", "main", "suppress_ifgroup", "1"],
        &["priority", "8", "table", "7", "dport", "80"],
        &["priority", "9", "not", "from", "10.0.0.0/8", "table", "7"],
    ] {
        let status =
            netns.run(|| std::process::Command::new("ip").args(["rule", "add"]).args(arguments).status()).unwrap();
        assert!(status.unwrap().success(), "{arguments:?}");
    }
    let mut marked = |priority| {
        let rules = socket.rules(Family::Ipv4).unwrap();
        rules.into_iter().find(|rule| rule.priority == Priority(priority)).map(|rule| (rule.protocol, rule.unmodeled))
    };
    assert_eq!(marked(5), Some((0, false)));
    for priority in [6, 7, 8, 9] {
        assert_eq!(marked(priority).map(|(_, unmodeled)| unmodeled), Some(true), "{priority}");
    }
}
