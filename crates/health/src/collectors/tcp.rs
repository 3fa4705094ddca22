//! Retransmitted TCP segments.

use super::kernel_table::value;
use crate::collector::{Kind, MINUTE, NO_PRIVILEGE, Sample};
use crate::host::Host;
use crate::signal::{Area, Gap, Signal, Unit};

/// With fewer segments a minute, a few lost ones would be many per cent.
const MIN_SEGMENTS: f64 = 1000.0;

pub(super) const KIND: Kind = Kind {
    area: Area::Network,
    name: "tcp",
    every: MINUTE,
    privilege: NO_PRIVILEGE,
    collect,
    signals: &[Signal {
        name: "tcp_retransmits",
        unit: Unit::Percent,
        source: "`/proc/net/snmp`: RetransSegs of OutSegs, of the host's own connections",
        why: "The host's packets are lost on the way; the kubelet and image pulls slow down or fail.",
        remedy: "Compare nodes of the subnet: one alone points to its VNIC or host, all of them to a security list or the peer.",
    }],
};

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    let text = host.proc("net/snmp")?;
    let total = |column| value(&text, "Tcp", column).ok_or_else(|| Gap::unknown(format!("no column {column}")));
    let (sent, retransmitted) = (total("OutSegs")?, total("RetransSegs")?);
    let (sent, retransmitted) =
        (sample.per_minute("sent", sent, host.now), sample.per_minute("again", retransmitted, host.now));
    let (sent, retransmitted) = (sent?, retransmitted?);
    let percent = if sent < MIN_SEGMENTS { 0.0 } else { 100.0 * retransmitted / sent };
    sample.value("tcp_retransmits", percent, format!("{retransmitted:.0} of {sent:.0} segments a minute"));
    Ok(())
}
