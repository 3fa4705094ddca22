//! Extra interfaces: `vnic-attach` against the reference plugins that people use today, and a pod that asks for nothing against a
//! program that does nothing.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use ipam::{AttachOffer, BootId, FamilyPool, Pools, VnicPool};
use netlink::{LinkKind, NewLink, Peer, Socket};
use serde_json::{Value, json};
use vcn::{AttachMode, IfName, Mtu, PerFamily, Purpose, TableId};

use super::args::Args;
use super::listener;
use super::pod::Pod;
use super::race::{Dice, Times};
use super::report::{line, ratio};
use super::verb;

/// A link for each that takes one into the pod.
const OURS: &str = "nic0";
const REFERENCES: &str = "nic1";
const OURS_MAC: &str = "02:00:17:00:00:0a";

/// Runs in a round of what leaves nothing behind: 1,000 in the default 200 rounds.
const REPEATS: usize = 5;

/// One that has its turn.
struct Contestant {
    name: &'static str,
    program: PathBuf,
    document: Vec<u8>,
    verbs: &'static [&'static str],
    pod: Pod,
    add: Times,
    del: Times,
}

/// Races them and writes the ratios.
pub(crate) fn run(args: &Args, state: &Path) -> anyhow::Result<String> {
    let state = state.join("extra");
    std::fs::create_dir(&state)?;
    // An agent does what may come after the answer.
    listener::listen(&state)?;
    make_links()?;
    write_pools(&state)?;
    let mut entrants = entrants(args)?;
    let mut dice = Dice::new();
    for round in 0..args.warm_up + args.rounds {
        dice.shuffle(&mut entrants);
        for entrant in &mut entrants {
            entrant.pod.id = format!("{:0>64}", format!("{}{round}", entrant.name.replace(' ', "")));
            let repeats = if entrant.verbs.contains(&"DEL") { 1 } else { REPEATS };
            for verb in entrant.verbs.repeat(repeats) {
                dice.wait();
                let took = entrant.call(verb, args, &state)?;
                let times = if verb == "DEL" { &mut entrant.del } else { &mut entrant.add };
                if round >= args.warm_up {
                    times.wall.push(took.wall);
                    times.cpu.push(took.cpu);
                }
            }
        }
    }
    table(&entrants)
}

fn entrants(args: &Args) -> anyhow::Result<Vec<Contestant>> {
    let plugin = args.vnic_attach.canonicalize().with_context(|| format!("find {}", args.vnic_attach.display()))?;
    let empty = args.empty.canonicalize().with_context(|| format!("find {}", args.empty.display()))?;
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
    let mut all = Vec::new();
    for (name, program, document, verbs) in [
        (
            "pass-through",
            plugin.clone(),
            conf("vnic-attach", json!({"prevResult": previous, "runtimeConfig": annotations})),
            &["ADD"][..],
        ),
        ("empty", empty, Vec::new(), &["ADD"]),
        ("shared", plugin.clone(), conf("vnic-attach", json!({"vnic": "shared"})), &["ADD", "DEL"]),
        (
            "macvlan",
            args.reference.join("macvlan"),
            conf("macvlan", json!({"master": "ens6", "ipam": ipam})),
            &["ADD", "DEL"],
        ),
        ("exclusive", plugin, conf("vnic-attach", json!({"vnic": "exclusive"})), &["ADD", "DEL"]),
        (
            "host-device",
            args.reference.join("host-device"),
            conf("host-device", json!({"device": REFERENCES, "ipam": ipam})),
            &["ADD", "DEL"],
        ),
    ] {
        let (add, del) = Default::default();
        all.push(Contestant { name, program, document, verbs, pod: Pod::new(String::new())?, add, del });
    }
    Ok(all)
}

impl Contestant {
    fn call(&self, verb: &str, args: &Args, state: &Path) -> anyhow::Result<verb::Run> {
        let mut command = Command::new(&self.program);
        command.env_clear().env("CNI_COMMAND", verb).env("CNI_CONTAINERID", &self.pod.id);
        command.env("CNI_NETNS", self.pod.path()).env("CNI_IFNAME", "net1").env("CNI_PATH", &args.reference);
        command.env("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=bench");
        command.env(attachment::STATE_DIR_VARIABLE, state);
        verb::run(&mut command, &self.document).with_context(|| format!("{verb} by {}", self.name))
    }
}

fn table(entrants: &[Contestant]) -> anyhow::Result<String> {
    let mut text = "\n| extra interface, in ms | wall p50 | p90 | CPU p50 | p90 |\n|---|---|---|---|---|\n".to_owned();
    let of = |name: &str| entrants.iter().find(|it| it.name == name).with_context(|| format!("{name} did not run"));
    for name in ["pass-through", "empty", "shared", "macvlan", "exclusive", "host-device"] {
        let entrant = of(name)?;
        for (verb, Times { wall, cpu }) in [("ADD", &entrant.add), ("DEL", &entrant.del)] {
            if entrant.verbs.contains(&verb) {
                let [w50, w90, c50, c90] = [(wall, 50), (wall, 90), (cpu, 50), (cpu, 90)].map(|(s, p)| s.percentile(p));
                writeln!(text, "| {name} {verb} | {w50:.2} | {w90:.2} | {c50:.2} | {c90:.2} |")?;
            }
        }
    }
    writeln!(text, "\n| promise | measured | target | |\n|---|---|---|---|")?;
    let pass = ratio(&of("pass-through")?.add.wall, &of("empty")?.add.wall);
    line(&mut text, "a pod that asks for nothing, wall, of an empty program", pass, 1.5)?;
    // Moving a link is nearly all of Exclusive's DEL, and the same for both: the kernel waits for all processors.
    for (ours, reference, most) in [("shared", "macvlan", 1.0), ("exclusive", "host-device", 1.15)] {
        let (of_ours, theirs) = (of(ours)?, of(reference)?);
        line(
            &mut text,
            &format!("ADD, {ours}, of {reference} + static"),
            ratio(&of_ours.add.wall, &theirs.add.wall),
            1.0,
        )?;
        line(
            &mut text,
            &format!("DEL, {ours}, of {reference} + static"),
            ratio(&of_ours.del.wall, &theirs.del.wall),
            most,
        )?;
    }
    Ok(text)
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
