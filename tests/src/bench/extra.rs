//! Extra interfaces: `vnic-attach` against the reference plugins that people use today, and a pod without extra interfaces against a
//! program that does nothing.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;
use ipam::{AttachOffer, BootId, FamilyPool, Pools, VnicPool};
use netlink::{LinkKind, NewLink, Peer, Socket};
use serde_json::{Value, json};
use vcn::{AttachMode, Family, IfName, LinkKindName, Mtu, PerFamily, Purpose, TableId};

use super::args::Args;
use super::contender::{BOTH, Contender, Kind};
use super::listener;
use super::race;
use super::report::{line, ratio, singles_table};

/// A link for each that takes one into the pod.
const OURS: &str = "nic0";
const REFERENCES: &str = "nic1";
const OURS_MAC: &str = "02:00:17:00:00:0a";

/// Those that leave nothing behind, often: 1,000 in the default 200 rounds.
const ADDS: &[&str] = &["ADD"; 5];

/// Races them and writes the ratios.
pub(crate) fn run(args: &Args, state: &Path) -> anyhow::Result<String> {
    let state = state.join("extra");
    std::fs::create_dir(&state)?;
    // An agent does what may come after the answer.
    listener::listen(&state)?;
    make_links()?;
    write_pools(&state)?;
    let singles = race::run(args, &contenders(args, &state)?)?;
    let mut text = "\n".to_owned();
    singles_table(&mut text, "extra interface", &singles)?;
    let of = |name: &str| singles.iter().find(|it| it.name == name).with_context(|| format!("{name} did not run"));
    writeln!(text, "\n| promise | measured | target | |\n|---|---|---|---|")?;
    let pass = ratio(&of("pass-through")?.add.wall, &of("empty")?.add.wall);
    line(&mut text, "a pod without extra interfaces, wall, of an empty program", pass, 1.5)?;
    // Moving a link is nearly all of Exclusive's DEL, and the same for both: the kernel waits for all processors.
    for (ours, reference, most) in [("shared", "macvlan", 1.0), ("exclusive", "host-device", 1.15)] {
        let (measured, compared) = (of(ours)?, of(reference)?);
        let add = ratio(&measured.add.wall, &compared.add.wall);
        line(&mut text, &format!("ADD, {ours}, of {reference} + static"), add, 1.0)?;
        let del = ratio(&measured.del.wall, &compared.del.wall);
        line(&mut text, &format!("DEL, {ours}, of {reference} + static"), del, most)?;
    }
    Ok(text)
}

fn contenders(args: &Args, state: &Path) -> anyhow::Result<Vec<Contender>> {
    let plugin = args.program("vnic-attach")?;
    let conf = |kind: &str, rest: Value| {
        let mut conf = json!({"cniVersion": "1.0.0", "name": "extra", "type": kind});
        if let (Some(conf), Value::Object(rest)) = (conf.as_object_mut(), rest) {
            conf.extend(rest);
        }
        conf.to_string().into_bytes()
    };
    let ipam = json!({"type": "static", "addresses": [{"address": "10.0.1.200/24", "gateway": "10.0.1.1"}]});
    let previous = json!({
        "cniVersion": "1.0.0", "interfaces": [{"name": "vcn0123456789ab"}, {"name": "eth0", "sandbox": "/run/netns/x"}],
        "ips": [{"address": "10.0.0.9/32", "gateway": "169.254.1.1", "interface": 1}],
        "routes": [{"dst": "0.0.0.0/0", "gw": "169.254.1.1"}], "dns": {},
    });
    let annotations = json!({"io.kubernetes.cri.pod-annotations": {"kubernetes.io/config.source": "api"}});
    let of = |kind, name, program: &Path, document| Contender {
        kind,
        name,
        label: name,
        families: vec![Family::Ipv4],
        verbs: BOTH,
        ifname: "net1",
        program: program.to_owned(),
        reference: args.reference.clone(),
        document,
        state: Some(state.to_owned()),
    };
    let without_interfaces = conf("vnic-attach", json!({"prevResult": previous, "runtimeConfig": annotations}));
    let macvlan = conf("macvlan", json!({"master": "ens6", "ipam": ipam}));
    let host_device = conf("host-device", json!({"device": REFERENCES, "ipam": ipam}));
    Ok(vec![
        Contender { verbs: ADDS, ..of(Kind::Ours, "pass-through", &plugin, without_interfaces) },
        Contender { verbs: ADDS, ..of(Kind::Empty, "empty", &args.program("empty-main")?, Vec::new()) },
        of(Kind::Ours, "shared", &plugin, conf("vnic-attach", json!({"vnic": "shared"}))),
        of(Kind::Reference, "macvlan", &args.reference.join("macvlan"), macvlan),
        of(Kind::Ours, "exclusive", &plugin, conf("vnic-attach", json!({"vnic": "exclusive"}))),
        of(Kind::Reference, "host-device", &args.reference.join("host-device"), host_device),
    ])
}

/// Two links that do for a VNIC's.
fn make_links() -> anyhow::Result<()> {
    let mut socket = Socket::open()?;
    for (name, mac) in [(OURS, Some(OURS_MAC.parse()?)), (REFERENCES, None)] {
        let peer = Peer { name: IfName::new(format!("{name}p"))?, mac: None, mtu: Some(Mtu::VCN), netns: None };
        let mut link = NewLink::new(IfName::new(name)?, LinkKind::Veth(peer));
        (link.mac, link.mtu) = (mac, Some(Mtu::VCN));
        socket.add_link(&link)?;
    }
    Ok(())
}

fn write_pools(state: &Path) -> anyhow::Result<()> {
    let vnic = |name: &str, link: &str, mode, addresses: &str, number: u32| -> anyhow::Result<VnicPool> {
        let offer = AttachOffer {
            name: name.to_owned(),
            mode,
            allowed_namespaces: vec!["default".to_owned()],
            vlan: None,
            link_kind: LinkKindName::new(Some("veth".to_owned())),
            subnets: PerFamily { ipv4: Some("10.0.0.0/24".parse()?), ipv6: None },
            routes: Vec::new(),
            is_leaving: false,
        };
        let pool =
            FamilyPool { router: "10.0.0.1".parse()?, reserved: Vec::new(), addresses: vec![addresses.parse()?] };
        Ok(VnicPool {
            vnic_id: format!("ocid1.vnic.oc1.iad.x{number}").parse()?,
            link: IfName::new(link)?,
            mac: OURS_MAC.parse()?,
            link_has_mac: false,
            mtu: Mtu::VCN,
            table: TableId(vcn::TABLE_BASE + 10 + number),
            purpose: Purpose::Attach,
            attach: Some(offer),
            families: PerFamily { ipv4: Some(pool), ipv6: None },
        })
    };
    let vnics = vec![
        vnic("shared", "ens5", AttachMode::Shared, "10.0.0.128/25", 0)?,
        vnic("exclusive", OURS, AttachMode::Exclusive, "10.0.0.20/32", 1)?,
    ];
    Pools::new(BootId::current()?, vnics, None).write(state)?;
    Ok(())
}
