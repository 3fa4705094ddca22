//! Settings of VNICs' links: different MTUs on one node, and strict reverse-path filtering.

use crate::collector::{FIVE_MINUTES, Kind, NO_PRIVILEGE, Sample};
use crate::host::Host;
use crate::signal::{Area, Gap, Signal, Unit};

pub(super) const KIND: Kind = Kind {
    area: Area::Network,
    name: "link_settings",
    every: FIVE_MINUTES,
    privilege: NO_PRIVILEGE,
    collect,
    signals: &[
        Signal {
            name: "mtu_mismatches",
            unit: Unit::Count,
            source: "`/sys/class/net/LINK/mtu` of each VNIC's link",
            why: "Large packets from a VNIC with a larger MTU are lost where an ICMP message is blocked: connections hang.",
            remedy: "Set the same MTU on all VNICs' links (9000 within OCI), and allow ICMP type 3 code 4 in security lists.",
        },
        Signal {
            name: "rp_filter_strict",
            unit: Unit::Count,
            source: "`/proc/sys/net/ipv4/conf/{all,LINK}/rp_filter` of secondary VNICs",
            why: "The kernel drops packets to pods whose answer would leave by another VNIC.",
            remedy: "Set `net.ipv4.conf.all.rp_filter` to 0 or 2 in /etc/sysctl.d; the agent sets 2 on the links.",
        },
    ],
};

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    sample.result("mtu_mismatches", mtus(host));
    sample.result("rp_filter_strict", strict_filters(host));
    Ok(())
}

fn mtus(host: &Host) -> Result<(f64, String), Gap> {
    let read = |name: &String| host.sys_number(&format!("class/net/{name}/mtu"));
    let links = host.facts.links()?.iter().map(|link| read(&link.name).map(|mtu| (&link.name, mtu)));
    let links = links.collect::<Result<Vec<_>, Gap>>()?;
    let expected = links.first().map_or(0.0, |(_, mtu)| *mtu);
    let others = links.iter().filter(|(_, mtu)| (*mtu - expected).abs() > 0.0).count();
    let detail: Vec<String> = links.iter().map(|(name, mtu)| format!("{name} {mtu}")).collect();
    Ok((others as f64, detail.join(", ")))
}

fn strict_filters(host: &Host) -> Result<(f64, String), Gap> {
    let of = |name: &str| host.proc_number(&format!("sys/net/ipv4/conf/{name}/rp_filter"));
    let all = of("all")?;
    let mut strict = Vec::new();
    let secondary: Vec<_> = host.facts.links()?.iter().filter(|link| !link.primary).collect();
    if secondary.is_empty() {
        return Err(Gap::absent("this node has no secondary VNIC"));
    }
    for link in secondary {
        // The larger of both counts: 0 off, 1 strict, 2 loose.
        let effective = of(&link.name)?.max(all);
        if (effective - 1.0).abs() < 0.5 {
            strict.push(link.name.as_str());
        }
    }
    Ok((strict.len() as f64, strict.join(", ")))
}
