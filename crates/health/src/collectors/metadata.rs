//! How fast the instance metadata service answers.

use std::time::Duration;

use crate::collector::{FIVE_MINUTES, Kind, NO_PRIVILEGE, Sample};
use crate::host::Host;
use crate::signal::{Area, Gap, Signal, Unit};

const DEADLINE: Duration = Duration::from_secs(3);

pub(super) const KIND: Kind = Kind {
    area: Area::Network,
    name: "metadata",
    every: FIVE_MINUTES,
    privilege: NO_PRIVILEGE,
    collect,
    signals: &[Signal {
        name: "metadata_latency",
        unit: Unit::Milliseconds,
        source: "an HTTP request to the metadata service",
        why: "VNIC changes, cloud-init, the cloud agent and instance principals all depend on it.",
        remedy: "See `MetadataUnavailable` in operator.md: usually a route or a firewall rule for 169.254.0.0/16.",
    }],
};

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    let Some((address, path)) = &host.facts.metadata else {
        return Err(Gap::absent("the metadata service's URL has no plain address"));
    };
    let (millis, detail) = match host.system.get(*address, path, DEADLINE) {
        Ok(answer) if answer.status == 200 => (answer.took.as_secs_f64() * 1000.0, format!("{address} answered")),
        Ok(answer) => return Err(Gap::unknown(format!("{address} answered with status {}", answer.status))),
        Err(error) => (DEADLINE.as_secs_f64() * 1000.0, format!("no answer from {address}: {error}")),
    };
    sample.value("metadata_latency", millis, detail);
    Ok(())
}
