//! The kernel's state, of all programs: links, addresses, rules, routes of all tables, neighbours, nft chains, settings.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use netlink::{Link, NeighbourFilter, RouteFilter, Socket, nft};
use resident::logging::chain;
use vcn::Family;

use super::archive::Archive;

/// Settings of each link, by family.
const OF_LINKS: [(&str, &str); 2] = [
    (
        "ipv4",
        "rp_filter forwarding arp_ignore arp_announce arp_filter proxy_arp accept_local accept_redirects send_redirects \
         src_valid_mark",
    ),
    ("ipv6", "forwarding accept_ra accept_ra_defrtr autoconf disable_ipv6 proxy_ndp accept_dad accept_redirects"),
];

/// Settings of the host.
const OF_HOST: [&str; 11] = [
    "net/ipv4/ip_forward",
    "net/ipv4/fib_multipath_hash_policy",
    "net/ipv4/neigh/default/gc_thresh1",
    "net/ipv4/neigh/default/gc_thresh2",
    "net/ipv4/neigh/default/gc_thresh3",
    "net/ipv6/neigh/default/gc_thresh3",
    "net/ipv6/route/max_size",
    "net/netfilter/nf_conntrack_count",
    "net/netfilter/nf_conntrack_max",
    "net/netfilter/nf_conntrack_tcp_be_liberal",
    "net/bridge/bridge-nf-call-iptables",
];

/// Files of the kernel that are collected whole. nf_tables does not have the tables of iptables-legacy, so their names are listed.
const PROC: [&str; 5] =
    ["net/dev", "net/ip_tables_names", "net/ip6_tables_names", "net/stat/nf_conntrack", "net/softnet_stat"];

/// The names of links, by index.
type LinkNames = HashMap<u32, String>;

pub(super) fn collect<W: io::Write>(sysctl_root: &Path, archive: &mut Archive<W>) -> io::Result<()> {
    let links = Socket::open().and_then(|mut socket| socket.links());
    let links = links.unwrap_or_else(|error| {
        archive.missing("net/links.txt", &chain(&error));
        Vec::new()
    });
    let names: LinkNames = links.iter().map(|link| (link.index, link.name.to_string())).collect();
    archive.text("net/links.txt", &links.iter().map(|link| line(link, &names)).collect::<String>())?;
    let mut dump = |name: &str, read: &dyn Fn(&mut Socket) -> Result<String, netlink::Error>| {
        archive.result(name, Socket::open().and_then(|mut socket| read(&mut socket)).map_err(|error| chain(&error)))
    };
    dump("net/addresses.txt", &|socket| addresses(socket, &names))?;
    dump("net/rules.txt", &rules)?;
    dump("net/routes.txt", &|socket| routes(socket, &names))?;
    dump("net/neighbours.txt", &|socket| neighbours(socket, &names))?;
    let chains = nft::NftSocket::open().and_then(|mut socket| socket.base_chains());
    archive.result("net/nft.txt", chains.map(|lines| lines.join("\n") + "\n").map_err(|error| chain(&error)))?;
    archive.text("net/sysctls.txt", &settings(sysctl_root, &links))?;
    for file in PROC {
        // Without iptables-legacy the list of its tables is missing.
        if let Ok(text) = fs::read_to_string(Path::new("/proc").join(file)) {
            archive.text(&format!("proc/{file}"), &text)?;
        }
    }
    Ok(())
}

fn line(link: &Link, names: &LinkNames) -> String {
    let state = match (link.up, link.running) {
        (true, true) => "up",
        (true, false) => "up, no carrier",
        (false, _) => "down",
    };
    let properties = [
        ("link", link.mac.map(|mac| mac.to_string())),
        ("type", link.kind.as_ref().map(ToString::to_string)),
        ("id", link.vlan.map(|tag| tag.to_string())),
        ("parent", link.parent.map(|index| name_of(index, names))),
        ("master", link.master.map(|index| name_of(index, names))),
        ("link-netnsid", link.peer_netns_id.map(|id| id.to_string())),
        ("group", (link.group != 0).then(|| link.group.to_string())),
        ("alias", link.alias.as_ref().map(|alias| format!("{alias:?}"))),
    ];
    let properties = properties.into_iter().filter_map(|(word, value)| Some(format!(" {word} {}", value?)));
    format!("{}: {}: {state} mtu {}{}\n", link.index, link.name, link.mtu, properties.collect::<String>())
}

fn addresses(socket: &mut Socket, names: &LinkNames) -> Result<String, netlink::Error> {
    let line = |address: &netlink::Address| {
        let flags = [
            (address.nodad, " nodad"),
            (address.noprefixroute, " noprefixroute"),
            (!address.permanent, " dynamic"),
            (address.tentative, " tentative"),
            (address.dad_failed, " dadfailed"),
        ];
        let flags: String = flags.into_iter().filter_map(|(is, word)| is.then_some(word)).collect();
        format!("{} dev {}{flags}\n", address.address, name_of(address.index, names))
    };
    Ok(socket.addresses(None)?.iter().map(line).collect())
}

fn rules(socket: &mut Socket) -> Result<String, netlink::Error> {
    let mut text = String::new();
    for family in Family::ALL {
        for rule in socket.rules(family)? {
            let more = if rule.unmodeled { " (and more)" } else { "" };
            let _ = writeln!(text, "{family} {rule} proto {}{more}", rule.protocol);
        }
    }
    Ok(text)
}

fn routes(socket: &mut Socket, names: &LinkNames) -> Result<String, netlink::Error> {
    let mut text = String::new();
    for family in Family::ALL {
        let mut all = socket.routes(&RouteFilter::all(family))?;
        all.sort_by_key(|route| route.table);
        for route in all {
            let more = if route.unmodeled { " (and more)" } else { "" };
            let _ = writeln!(text, "{family} {} proto {}{more}", named(&route, route.oif, names), route.protocol);
        }
    }
    Ok(text)
}

fn neighbours(socket: &mut Socket, names: &LinkNames) -> Result<String, netlink::Error> {
    let mut text = String::new();
    for proxy in [false, true] {
        for neighbour in socket.neighbours(&NeighbourFilter { proxy, ..NeighbourFilter::default() })? {
            let _ = writeln!(text, "{}", named(&neighbour, neighbour.index, names));
        }
    }
    Ok(text)
}

/// An object's text, with the name of its link instead of the index.
fn named(object: &impl ToString, index: u32, names: &LinkNames) -> String {
    object.to_string().replacen(&format!(" dev {index}"), &format!(" dev {}", name_of(index, names)), 1)
}

fn settings(root: &Path, links: &[Link]) -> String {
    let mut text = String::new();
    let mut add = |key: &str| {
        if let Ok(value) = fs::read_to_string(root.join(key)) {
            let _ = writeln!(text, "{key}={}", value.trim());
        }
    };
    for key in OF_HOST {
        add(key);
    }
    for (family, keys) in OF_LINKS {
        let names = links.iter().map(|link| link.name.as_str());
        for link in ["all", "default"].into_iter().chain(names) {
            for key in keys.split(' ') {
                add(&format!("net/{family}/conf/{link}/{key}"));
            }
        }
    }
    text
}

fn name_of(index: u32, names: &LinkNames) -> String {
    names.get(&index).cloned().unwrap_or_else(|| index.to_string())
}
