//! The links of VNICs: carrier, flaps, errors, drops. Other links are not examined: management ports of bare metal are down
//! by design.

use std::time::Duration;

use crate::collector::{Kind, MINUTE, NO_PRIVILEGE, Sample};
use crate::facts::VnicLink;
use crate::host::{Carrier, Host};
use crate::signal::{Area, Gap, Signal, Unit};

const SOURCE: &str = "`/sys/class/net/LINK/` of each VNIC's link";
const REMEDY: &str =
    "Compare with the VNIC's metrics in the OCI console; move pods off the node, then reboot or replace it.";

/// More often than counters, because pods have no network meanwhile.
pub(super) const CARRIER: Kind = Kind {
    area: Area::Network,
    name: "carrier",
    every: Duration::from_secs(15),
    privilege: NO_PRIVILEGE,
    collect: carrier,
    signals: &[Signal {
        name: "link_down",
        unit: Unit::Count,
        source: SOURCE,
        why: "A VNIC without carrier loses all packets of its pods.",
        remedy: REMEDY,
    }],
};

pub(super) const KIND: Kind = Kind {
    area: Area::Network,
    name: "links",
    every: MINUTE,
    privilege: NO_PRIVILEGE,
    collect,
    signals: &[
        Signal {
            name: "link_flaps",
            unit: Unit::PerMinute,
            source: SOURCE,
            why: "Each loss of carrier interrupts all connections over the VNIC.",
            remedy: REMEDY,
        },
        Signal {
            name: "link_errors",
            unit: Unit::PerMinute,
            source: SOURCE,
            why: "Damaged frames are lost; connections retransmit and slow down.",
            remedy: REMEDY,
        },
        Signal {
            name: "link_drops",
            unit: Unit::PerMinute,
            source: SOURCE,
            why: "The host drops packets that arrived, usually because it is too busy to process them.",
            remedy: "Look for busy CPUs (`softnet_drops`) and a shape whose network bandwidth is used up.",
        },
    ],
};

/// A signal that sums counters of a link.
const COUNTERS: &[(&str, &[&str])] = &[
    ("link_flaps", &["carrier_changes"]),
    ("link_errors", &["statistics/rx_errors", "statistics/tx_errors"]),
    ("link_drops", &["statistics/rx_dropped", "statistics/tx_dropped", "statistics/rx_missed_errors"]),
];

fn carrier(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    sample.result("link_down", down(host, host.facts.links()?));
    Ok(())
}

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    let links = host.facts.links()?;
    for (signal, files) in COUNTERS {
        let mut worst: Option<(f64, String)> = None;
        let mut gap = Gap::unknown("no link has this counter");
        for link in links {
            let total: Result<f64, Gap> =
                files.iter().map(|file| host.sys_number(&format!("class/net/{}/{file}", link.name))).sum();
            match total.and_then(|total| sample.per_minute(&format!("{signal} {}", link.name), total, host.now)) {
                Ok(rate) if worst.as_ref().is_none_or(|(highest, _)| rate > *highest) => {
                    worst = Some((rate, link.name.clone()));
                }
                Ok(_) => {}
                Err(why) => gap = why,
            }
        }
        sample.result(signal, worst.ok_or(gap));
    }
    Ok(())
}

/// Links without carrier. One that cannot be examined leaves the others unproven.
fn down(host: &Host, links: &[VnicLink]) -> Result<(f64, String), Gap> {
    let (mut down, mut gap) = (Vec::new(), None);
    for VnicLink { name, is_kept_up, .. } in links {
        match host.carrier(name) {
            Ok(Carrier::Present) => {}
            Ok(Carrier::Absent) => down.push(format!("{name} has no carrier")),
            // A VNIC that waits for its pod is down on purpose.
            Ok(Carrier::AdministrativelyDown) if !is_kept_up => {}
            Ok(Carrier::AdministrativelyDown) => down.push(format!("{name} is administratively down")),
            // One that waits for its pod may have left for it.
            Err(_) if !is_kept_up => {}
            Err(error) => gap = Some(error),
        }
    }
    match gap {
        Some(gap) if down.is_empty() => Err(gap),
        _ => Ok((down.len() as f64, down.join(", "))),
    }
}
