//! What the agent's last reconcile found: drifted VNICs, firewalls that reject forwarded packets, other network managers, and how
//! often another program reverts our objects.

use crate::collector::{AGENT_REPORT, Kind, MINUTE, Sample};
use crate::facts::Topic;
use crate::host::Host;
use crate::signal::{Area, Gap, Signal, Unit};

pub(super) const KIND: Kind = Kind {
    area: Area::Network,
    name: "vnics",
    every: MINUTE,
    privilege: AGENT_REPORT,
    collect,
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
            remedy: "Read the log event `host.repaired`, which names the object, and run `ip monitor link address route rule` to see when it goes.",
        },
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

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    let network = host.facts.network()?;
    for (signal, topic) in [
        ("vnic_problems", Topic::Vnic),
        ("forwarding_rejected", Topic::Forwarding),
        ("manager_interference", Topic::NetworkManager),
    ] {
        let messages = network.about(topic);
        sample.value(signal, messages.count, messages.text);
    }
    let total = network.repairs;
    let detail = format!("{total} repairs since the agent started");
    sample.rate("vnic_repairs", total as f64, host.now, detail);
    Ok(())
}
