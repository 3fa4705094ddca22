//! nf_tables against the real kernel, read back by the real `nft`.

use std::process::Command;

use netlink::nft::{
    Chain, ChainKind, Direction, Expression, Hook, LinkMatch, NftSocket, Rate, Rule, Table, TableFamily,
};
use netlink::{Cause, Errno, Netns};
use vcn::{IfName, Mark};

fn nft(netns: &Netns, arguments: &[&str]) -> String {
    let output = netns.run(|| Command::new("nft").args(arguments).output()).unwrap().unwrap();
    assert!(output.status.success(), "nft {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn chain(hook: Hook, kind: ChainKind, priority: i32, rules: Vec<Rule>) -> Chain {
    let name = format!("{hook:?}").to_lowercase();
    Chain { name, hook, kind, priority, rules }
}

/// That the product's own rules are encoded as they are meant is shown in `crates/datapath/tests/networks/host.rs`.
fn sample() -> Table {
    use Expression as E;
    let pods = || LinkMatch::Prefix("vcn".to_owned());
    let primary = || LinkMatch::Exact(IfName::new("ens3").unwrap());
    let prerouting = vec![
        Rule::new("whole mark", [E::CtDirection(Direction::Reply), E::SetMark(Mark { value: 5, mask: u32::MAX })]),
        Rule::new("too many", [E::Iifname(pods()), E::LinkExceeds(RATE), E::Drop]),
    ];
    let forward = vec![
        Rule::new("v6", [E::SourceNet("fd00::/64".parse().unwrap()), E::OifnameNot(primary()), E::Accept]),
        Rule::new("", [E::DestinationNet("169.254.169.254/32".parse().unwrap()), E::Drop]),
    ];
    let postrouting = vec![Rule::new("out by the primary", [E::Oifname(primary()), E::Masquerade])];
    Table {
        family: TableFamily::Inet,
        name: "vcn-test".to_owned(),
        chains: vec![
            chain(Hook::Prerouting, ChainKind::Filter, -101, prerouting),
            chain(Hook::Forward, ChainKind::Filter, 0, forward),
            chain(Hook::Postrouting, ChainKind::Nat, 100, postrouting),
        ],
    }
}

const RATE: Rate = Rate { per_second: 10, burst: 20 };

const LISTED: &str = r#"table inet vcn-test {
	set links {
		type iface_index
		size 4096
		flags dynamic,timeout
		timeout 10s
	}

	chain prerouting {
		type filter hook prerouting priority dstnat - 1; policy accept;
		ct direction reply meta mark set 0x00000005 comment "whole mark"
		iifname "vcn*" update @links { iif limit rate over 10/second burst 20 packets } drop comment "too many"
	}

	chain forward {
		type filter hook forward priority filter; policy accept;
		ip6 saddr fd00::/64 oifname != "ens3" accept comment "v6"
		ip daddr 169.254.169.254 drop
	}

	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		oifname "ens3" masquerade fully-random comment "out by the primary"
	}
}
"#;

/// ARP is seen by no table of family inet.
fn arp() -> Table {
    let pods = LinkMatch::Prefix("vcn".to_owned());
    let rules =
        vec![Rule::new("too many", [Expression::Iifname(pods), Expression::LinkExceeds(RATE), Expression::Drop])];
    let chains = vec![chain(Hook::Input, ChainKind::Filter, 0, rules)];
    Table { family: TableFamily::Arp, name: "vcn-test".to_owned(), chains }
}

const ARP_LISTED: &str = r#"table arp vcn-test {
	set links {
		type iface_index
		size 4096
		flags dynamic,timeout
		timeout 10s
	}

	chain input {
		type filter hook input priority filter; policy accept;
		iifname "vcn*" update @links { iif limit rate over 10/second burst 20 packets } drop comment "too many"
	}
}
"#;

#[test]
fn tables_of_two_families_are_replaced_atomically() {
    let netns = Netns::create().unwrap();
    let mut socket = NftSocket::open_in(&netns).unwrap();
    socket.replace_tables(&[sample(), arp()]).unwrap_or_else(|error| panic!("{error}: {}", error.cause()));
    assert_eq!(nft(&netns, &["list", "table", "inet", "vcn-test"]), LISTED);
    assert_eq!(nft(&netns, &["list", "table", "arp", "vcn-test"]), ARP_LISTED);
    let comments = |socket: &mut NftSocket, family| socket.comments(family, "vcn-test").unwrap().unwrap();
    assert_eq!(comments(&mut socket, TableFamily::Arp), ["too many"]);
    assert_eq!(comments(&mut socket, TableFamily::Inet), ["whole mark", "too many", "v6", "", "out by the primary"]);
    // A kernel's own check, of the second table: addresses are translated in no table of family arp.
    let mut bad = arp();
    bad.chains[0].kind = ChainKind::Nat;
    let error = socket.replace_tables(&[Table { chains: vec![], ..sample() }, bad]).unwrap_err();
    assert_eq!(error.to_string(), "cannot replace nft table arp vcn-test, chain input");
    assert_eq!(nft(&netns, &["list", "table", "inet", "vcn-test"]), LISTED);
    let mut bad = arp();
    bad.chains[0].hook = Hook::Prerouting;
    assert!(matches!(socket.replace_tables(&[bad]).unwrap_err().cause(), Cause::Invalid(_)));
    socket.delete_tables("vcn-test").unwrap();
    assert_eq!(nft(&netns, &["list", "tables"]), "");
}

#[test]
fn replacing_leaves_nothing_of_what_was_there() {
    let netns = Netns::create().unwrap();
    let mut socket = NftSocket::open_in(&netns).unwrap();
    socket.replace_tables(&[sample()]).unwrap();
    nft(&netns, &["add", "chain", "inet", "vcn-test", "unknown"]);
    nft(&netns, &["add", "rule", "inet", "vcn-test", "forward", "drop"]);
    socket.replace_tables(&[sample()]).unwrap();
    assert_eq!(nft(&netns, &["list", "table", "inet", "vcn-test"]), LISTED);
}

#[test]
fn refused_table_changes_nothing_and_error_names_the_rule() {
    let netns = Netns::create().unwrap();
    let mut socket = NftSocket::open_in(&netns).unwrap();
    socket.replace_tables(&[sample()]).unwrap();
    let mut bad = sample();
    // Masquerading belongs after routing.
    bad.chains[1].rules.insert(1, Rule::new("misplaced", [Expression::Masquerade]));
    let error = socket.replace_tables(&[bad]).unwrap_err();
    assert_eq!(error.to_string(), "cannot replace nft table inet vcn-test, chain forward, rule \"misplaced\"");
    assert!(error.errno().is_some());
    assert_eq!(nft(&netns, &["list", "table", "inet", "vcn-test"]), LISTED);
    socket.replace_tables(&[sample()]).expect("the socket is still usable");
}

#[test]
fn other_tables_are_left_alone_and_deleting_twice_is_fine() {
    let netns = Netns::create().unwrap();
    let mut socket = NftSocket::open_in(&netns).unwrap();
    nft(&netns, &["add", "table", "inet", "others"]);
    nft(&netns, &["add", "chain", "inet", "others", "forward"]);
    nft(&netns, &["add", "rule", "inet", "others", "forward", "accept", "comment", "other"]);
    socket.replace_tables(&[sample()]).unwrap();
    assert!(!socket.comments(TableFamily::Inet, "vcn-test").unwrap().unwrap().contains(&"other".to_owned()));
    assert_eq!(socket.comments(TableFamily::Inet, "others").unwrap().unwrap(), ["other"]);
    socket.delete_tables("vcn-test").unwrap();
    socket.delete_tables("vcn-test").unwrap();
    assert_eq!(socket.comments(TableFamily::Inet, "vcn-test").unwrap(), None);
    assert!(nft(&netns, &["list", "tables"]).contains("others"));
}

#[test]
fn invalid_rule_is_refused_before_it_reaches_kernel() {
    let netns = Netns::create().unwrap();
    let mut socket = NftSocket::open_in(&netns).unwrap();
    let rules = [
        Rule::new("x".repeat(128), [Expression::Accept]),
        Rule::new("empty prefix", [Expression::Iifname(LinkMatch::Prefix(String::new()))]),
    ];
    for rule in rules {
        let chains = vec![chain(Hook::Forward, ChainKind::Filter, 0, vec![rule])];
        let error = socket
            .replace_tables(&[Table { family: TableFamily::Inet, name: "vcn-test".to_owned(), chains }])
            .unwrap_err();
        assert!(matches!(error.cause(), Cause::Invalid(_)), "{error}");
    }
    let longest = Rule::new("x".repeat(127), [Expression::Accept]);
    let chains = vec![chain(Hook::Forward, ChainKind::Filter, 0, vec![longest])];
    socket.replace_tables(&[Table { family: TableFamily::Inet, name: "vcn-test".to_owned(), chains }]).unwrap();
    assert!(nft(&netns, &["list", "ruleset"]).contains(&"x".repeat(127)));
}

#[test]
fn replace_tables_without_capability_fails_with_eperm() {
    let netns = Netns::create().unwrap();
    let error = netns
        .run(|| {
            let mut socket = NftSocket::open().unwrap();
            drop_capabilities();
            socket.replace_tables(&[sample()]).unwrap_err()
        })
        .unwrap();
    assert_eq!(error.errno(), Some(Errno::EPERM), "{error}");
}

#[test]
#[ignore = "needs a kernel without nf_tables: run by tests/uml/run"]
fn kernel_without_nf_tables_is_reported_as_unsupported() {
    // It may have the rest of netfilter.
    let outcome = NftSocket::open().and_then(|mut socket| socket.comments(TableFamily::Inet, "vcn-test"));
    assert!(outcome.unwrap_err().is_unsupported());
}

/// Of this thread only, which ends with the test.
#[expect(unsafe_code, reason = "no crate wraps capset")]
fn drop_capabilities() {
    let header: [u32; 2] = [0x2008_0522, 0];
    let data = [0_u32; 6];
    // SAFETY: both arrays have the layout and length that version 3 of the interface reads.
    let result = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()) };
    assert_eq!(result, 0);
}

#[test]
fn base_chains_of_all_programs_are_listed() {
    let netns = Netns::create().unwrap();
    let listed = || netns.run(|| NftSocket::open().unwrap().base_chains().unwrap()).unwrap();
    assert_eq!(listed(), [""; 0]);
    netns.run(|| NftSocket::open().unwrap().replace_tables(&[sample(), arp()]).unwrap()).unwrap();
    nft(&netns, &["add table ip filter"]);
    nft(&netns, &["add chain ip filter LATER"]);
    nft(&netns, &["add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }"]);
    let lines = listed();
    for line in [
        "inet vcn-test prerouting: filter at prerouting, priority -101",
        "inet vcn-test postrouting: nat at postrouting, priority 100",
        "arp vcn-test input: filter at input, priority 0",
        "ip filter FORWARD: filter at forward, priority 0, policy drop",
    ] {
        assert!(lines.iter().any(|it| it == line), "{line}: {lines:?}");
    }
    assert!(!lines.iter().any(|it| it.contains("LATER")), "{lines:?}");
}
