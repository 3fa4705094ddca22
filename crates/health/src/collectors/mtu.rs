//! VNICs with different MTUs on one node.

use super::{FIVE_MINUTES, NOTHING};
use crate::collector::{Area, Collector, Gap, Kind, Sample, Signal, Unit};
use crate::host::Host;

pub(super) const KIND: Kind = Kind {
    area: Area::Network,
    name: "mtu",
    every: FIVE_MINUTES,
    privilege: NOTHING,
    make: || Box::new(Mtu),
    signals: &[Signal {
        name: "mtu_mismatches",
        unit: Unit::Count,
        source: "`/sys/class/net/LINK/mtu` of each VNIC's link",
        why: "Large packets from a VNIC with a larger MTU are lost where an ICMP message is blocked: connections hang.",
        remedy: "Set the same MTU on all VNICs' links (9000 within OCI), and allow ICMP type 3 code 4 in security lists.",
    }],
};

struct Mtu;

impl Collector for Mtu {
    fn collect(&mut self, host: &Host, sample: &mut Sample) -> Result<(), Gap> {
        let read = |name: &String| host.sys_number(&format!("class/net/{name}/mtu"));
        let links = host.facts.links()?.iter().map(|link| read(&link.name).map(|mtu| (&link.name, mtu)));
        let links = links.collect::<Result<Vec<_>, Gap>>()?;
        let expected = links.first().map_or(0.0, |(_, mtu)| *mtu);
        let others = links.iter().filter(|(_, mtu)| (*mtu - expected).abs() > 0.0).count();
        let detail: Vec<String> = links.iter().map(|(name, mtu)| format!("{name} {mtu}")).collect();
        sample.value("mtu_mismatches", others as f64, detail.join(", "));
        Ok(())
    }
}
