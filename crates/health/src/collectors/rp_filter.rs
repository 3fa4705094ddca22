//! Strict reverse-path filtering on secondary VNICs.

use super::{FIVE_MINUTES, NOTHING};
use crate::collector::{Area, Collector, Gap, Kind, Sample, Signal, Unit};
use crate::host::Host;

pub(super) const KIND: Kind = Kind {
    area: Area::Network,
    name: "rp_filter",
    every: FIVE_MINUTES,
    privilege: NOTHING,
    make: || Box::new(RpFilter),
    signals: &[Signal {
        name: "rp_filter_strict",
        unit: Unit::Count,
        source: "`/proc/sys/net/ipv4/conf/{all,LINK}/rp_filter` of secondary VNICs",
        why: "The kernel drops packets to pods whose answer would leave by another VNIC.",
        remedy: "Set `net.ipv4.conf.all.rp_filter` to 0 or 2 in /etc/sysctl.d; the agent sets 2 on the links.",
    }],
};

struct RpFilter;

impl Collector for RpFilter {
    fn collect(&mut self, host: &Host, sample: &mut Sample) -> Result<(), Gap> {
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
        sample.value("rp_filter_strict", strict.len() as f64, strict.join(", "));
        Ok(())
    }
}
