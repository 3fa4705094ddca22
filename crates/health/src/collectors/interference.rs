//! Firewalls that reject forwarded packets, and other network managers: what the agent's interference checks found.

use super::{AGENT, MINUTE};
use crate::collector::{Area, Collector, Gap, Kind, Sample, Signal, Unit};
use crate::facts::Topic;
use crate::host::Host;

pub(super) const KIND: Kind = Kind {
    area: Area::Network,
    name: "interference",
    every: MINUTE,
    privilege: AGENT,
    make: || Box::new(Interference),
    signals: &[
        Signal {
            name: "forwarding_rejected",
            unit: Unit::Count,
            source: "the agent's conditions about forward chains",
            why: "Oracle Linux images reject forwarded packets by default, which cuts pods off.",
            remedy: "Run the command that the detail names; it accepts packets of pods in that chain.",
        },
        Signal {
            name: "manager_interference",
            unit: Unit::Count,
            source: "the agent's conditions about network managers",
            why: "A second program that configures VNICs removes routes and rules of pods.",
            remedy: "Follow the detail: it names the program and the setting that excludes our links.",
        },
    ],
};

struct Interference;

impl Collector for Interference {
    fn collect(&mut self, host: &Host, sample: &mut Sample) -> Result<(), Gap> {
        let network = host.facts.network()?;
        for (signal, topic) in
            [("forwarding_rejected", Topic::Forwarding), ("manager_interference", Topic::NetworkManager)]
        {
            let messages = network.about(topic);
            sample.value(signal, messages.count, messages.text);
        }
        Ok(())
    }
}
