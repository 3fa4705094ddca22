//! VNICs that are not configured as they should be, and how often another program reverts our objects.

use super::rate::Rate;
use super::{AGENT, MINUTE};
use crate::collector::{Area, Collector, Gap, Kind, Sample, Signal, Unit};
use crate::facts::Topic;
use crate::host::Host;

pub(super) const KIND: Kind = Kind {
    area: Area::Network,
    name: "vnics",
    every: MINUTE,
    privilege: AGENT,
    make: || Box::<Vnics>::default(),
    signals: &[
        Signal {
            name: "vnic_problems",
            unit: Unit::Count,
            source: "the agent's conditions about VNICs, links, routes and rules",
            why: "A VNIC without its link, routes or rules carries no pod traffic.",
            remedy: "Run `oke-node-agent why-not-ready` in the agent's pod: it names each VNIC, the cause and the command.",
        },
        Signal {
            name: "vnic_repairs",
            unit: Unit::PerMinute,
            source: "the agent's repairs of links, addresses, routes and rules",
            why: "Another program removes our objects; each time pods lose packets until the agent repairs them.",
            remedy: "The log event `host.repaired` names the object; `ip monitor link address route rule` shows when it goes.",
        },
    ],
};

#[derive(Default)]
struct Vnics {
    repairs: Rate,
}

impl Collector for Vnics {
    fn collect(&mut self, host: &Host, sample: &mut Sample) -> Result<(), Gap> {
        let network = host.facts.network()?;
        let messages = network.about(Topic::Vnic);
        sample.value("vnic_problems", messages.count, messages.text);
        let total = network.repairs;
        let rate = self.repairs.per_minute(total as f64, host.now);
        sample.result("vnic_repairs", rate.map(|rate| (rate, format!("{total} repairs since the agent started"))));
        Ok(())
    }
}
