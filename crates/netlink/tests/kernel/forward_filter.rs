//! Firewalls of the real `iptables` and `nft`: those that stop forwarded packets are found, and no others. And a change of
//! our table is noticed.

use std::process::Command;
use std::time::Duration;

use netlink::Netns;
use netlink::nft::{ForwardPath, LinkMatch, NftSocket, Watch};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

fn run(netns: &Netns, command: &str) {
    let output = netns.run(|| Command::new("sh").args(["-c", command]).output()).unwrap().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

fn from_pods() -> ForwardPath {
    ForwardPath { from: LinkMatch::Prefix("vcn".into()), to: LinkMatch::Exact("ens5".parse().unwrap()) }
}

fn to_pods() -> ForwardPath {
    ForwardPath { from: LinkMatch::Exact("ens5".parse().unwrap()), to: LinkMatch::Prefix("vcn".into()) }
}

/// The chains that block packets from pods or to them, as texts.
fn blocking(commands: &[&str]) -> Vec<String> {
    let netns = Netns::create().unwrap();
    commands.iter().for_each(|command| run(&netns, command));
    let look = || NftSocket::open().unwrap().blocking_chains(&[from_pods(), to_pods()]).unwrap();
    netns.run(look).unwrap().iter().map(|chain| format!("{chain} {}", chain.how)).collect()
}

/// What the calling thread has computed so far, here and in the kernel.
fn worked() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
    let all = [usage.user_time(), usage.system_time()];
    all.iter().map(|time| Duration::from_micros(u64::try_from(time.num_microseconds()).unwrap())).sum()
}

/// kube-proxy keeps all services in one table, which has a chain at the forward hook.
#[test]
fn filter_reads_rules_once_for_any_number_of_links() {
    let netns = Netns::create().unwrap();
    let services: String =
        (0..20_000_u32).map(|at| format!("ip daddr 10.96.{}.{} tcp dport 80 accept\n", at / 250, at % 250)).collect();
    let table = format!(
        "table ip kube-proxy {{ chain services {{ {services} }}
         chain forward {{ type filter hook forward priority 0; policy accept; jump services; iifname \"ens77\" drop; }}; }}"
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), table).unwrap();
    run(&netns, &format!("nft -f {}", file.path().display()));
    let way = |last: u8| ForwardPath {
        to: LinkMatch::Prefix("vcn".into()),
        from: LinkMatch::Exact(format!("ens{last}").parse().unwrap()),
    };
    let look = |ways: &[ForwardPath]| {
        let (mut socket, before) = (NftSocket::open().unwrap(), worked());
        let texts: Vec<String> = socket.blocking_chains(ways).unwrap().iter().map(ToString::to_string).collect();
        (worked() - before, texts)
    };
    let many: Vec<ForwardPath> = (0..64).map(way).collect();
    netns
        .run(|| {
            look(&many[..1]);
            let ((one, none), (all, still)) = (look(&many[..1]), look(&many));
            println!("one way {one:?}, 64 ways {all:?}");
            assert_eq!((none, still), (vec![], vec![]));
            assert!(all < one * 8, "one way {one:?}, 64 ways {all:?}");
            assert_eq!(look(&[way(1), way(77), way(78)]).1, ["ip kube-proxy forward"]);
        })
        .unwrap();
}

const ORACLE_LINUX: [&str; 2] = [
    "iptables-nft -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
    "iptables-nft -A FORWARD -j REJECT --reject-with icmp-host-prohibited",
];

#[test]
fn default_firewall_of_oracle_linux_is_reported() {
    assert_eq!(blocking(&ORACLE_LINUX), ["ip filter FORWARD reject"]);
    assert_eq!(blocking(&["ip6tables-nft -A FORWARD -j REJECT"]), ["ip6 filter FORWARD reject"]);
}

#[test]
fn drop_policy_is_reported() {
    assert_eq!(blocking(&["iptables-nft -P FORWARD DROP"]), ["ip filter FORWARD policy drop"]);
}

#[test]
fn rejecting_firewalld_is_reported_unless_our_links_are_trusted() {
    let table = |trusted: &str| {
        format!(
            "nft 'table inet firewalld {{
                chain trusted {{ accept; }}
                chain public {{ counter; }}
                chain zones {{ {trusted} iifname \"ens3\" goto public; }}
                chain filter_FORWARD {{ type filter hook forward priority filter + 10; policy accept;
                    ct state established,related accept; ct state invalid drop; iifname \"lo\" accept;
                    jump zones; log prefix \"x\" reject with icmpx admin-prohibited; }}
                }}'"
        )
    };
    assert_eq!(blocking(&[&table("")]), ["inet firewalld filter_FORWARD reject"]);
    assert_eq!(blocking(&[&table(r#"iifname "vcn*" goto trusted; oifname "vcn*" goto trusted;"#)]), [""; 0]);
}

#[test]
fn a_firewall_that_accepts_our_links_first_is_no_barrier() {
    let accepting = ["iptables-nft -I FORWARD -i vcn+ -j ACCEPT", "iptables-nft -I FORWARD -o vcn+ -j ACCEPT"];
    assert_eq!(blocking(&[&ORACLE_LINUX[..], &accepting[..]].concat()), [""; 0]);
    // One way alone is half of it.
    assert_eq!(blocking(&[&ORACLE_LINUX[..], &accepting[..1]].concat()), ["ip filter FORWARD reject"]);
    let by_other_links =
        ["iptables-nft -I FORWARD -i docker0 -j ACCEPT", "iptables-nft -I FORWARD ! -i vcn+ -j ACCEPT"];
    assert_eq!(blocking(&[&ORACLE_LINUX[..], &by_other_links[..]].concat()), ["ip filter FORWARD reject"]);
}

#[test]
fn rules_about_other_packets_links_and_hooks_are_no_barrier() {
    let commands = [
        "iptables-nft -P FORWARD ACCEPT",
        "iptables-nft -P INPUT DROP",
        "iptables-nft -A INPUT -j REJECT",
        "iptables-nft -N KUBE-FORWARD",
        "iptables-nft -A FORWARD -j KUBE-FORWARD",
        "iptables-nft -A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP",
        "iptables-nft -A FORWARD -i docker0 -j DROP",
        "iptables-nft -A FORWARD -d 169.254.0.0/16 -j DROP",
        "nft 'table inet vcn-native { chain forward { type filter hook forward priority 0; iifname \"vcn*\" ip daddr \
         169.254.0.0/16 drop; }; }'",
    ];
    assert_eq!(blocking(&commands), [""; 0]);
    assert_eq!(blocking(&[]), [""; 0]);
}

#[test]
fn watch_reports_changes_of_its_table_only() {
    let netns = Netns::create().unwrap();
    let mut watch = netns.run(|| Watch::open("vcn-native").unwrap()).unwrap();
    assert_eq!(watch.drain().unwrap(), None);
    let mut reported_change = |command: &str| {
        run(&netns, command);
        watch.drain().unwrap()
    };
    assert_eq!(
        reported_change("nft add table inet other; nft add chain inet other c; nft add rule inet other c accept"),
        Some(false)
    );
    assert_eq!(reported_change("nft add table inet vcn-native"), Some(true));
    assert_eq!(reported_change("nft add chain inet vcn-native forward"), Some(true));
    assert_eq!(reported_change("nft add rule inet vcn-native forward accept"), Some(true));
    assert_eq!(reported_change("nft add table arp vcn-native"), Some(true), "its namesake of another family");
    assert_eq!(reported_change("iptables-nft -A FORWARD -j ACCEPT"), Some(false));
    assert_eq!(reported_change("nft flush ruleset"), Some(true));
}
