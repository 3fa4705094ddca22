//! Rates of RDMA ports: only of functions whose address is on the shape's list. On others (the management of NVSwitches)
//! reading counters fails and floods the kernel's log. The older `counters` are not read: several stop at 255.

use crate::collector::{Kind, MINUTE, NO_PRIVILEGE, Sample};
use crate::hardware::device::FaultyDevice;
use crate::hardware::inventory::{Adapter, Inventory, file};
use crate::hardware::shapes::RdmaRow;
use crate::host::{Host, names};
use crate::signal::{Area, Gap, Signal, Unit};

pub(crate) const KIND: Kind = Kind {
    area: Area::Accelerators,
    name: "rdma_counters",
    every: MINUTE,
    privilege: NO_PRIVILEGE,
    collect,
    signals: &[
        Signal {
            name: "rdma_flaps",
            unit: Unit::PerMinute,
            source: "`/sys/bus/pci/devices/ADDRESS/net/*/carrier_down_count` of the shape's RDMA functions, 30 minutes after boot",
            why: "Each loss of the link ends the jobs that use the port.",
            remedy: "Compare with other nodes: ports of one switch fail together. If it is this node only, report the host to Oracle.",
        },
        Signal {
            name: "rdma_errors",
            unit: Unit::PerMinute,
            source: "`/sys/bus/pci/devices/ADDRESS/infiniband/*/ports/1/hw_counters/{local_ack_timeout_err,rx_icrc_encapsulated}` of the shape's RDMA functions",
            why: "Packets are lost or damaged on the way; jobs slow down or end.",
            remedy: "Compare with other nodes of the job; if it is this port only, report the host to Oracle.",
        },
    ],
};

/// Links come and go while the cloud agent configures them. Seconds since boot; oci-hpc uses the same.
const LINK_SETTLING_SECONDS: f64 = 1800.0;

const ERRORS: &[&str] = &["local_ack_timeout_err", "rx_icrc_encapsulated"];

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    let found = Inventory::of(host, &mut sample.memory.functions)?;
    let listed = found.row.and_then(|row| row.rdma.as_ref()).map(RdmaRow::functions).unwrap_or_default();
    let ports: Vec<&Adapter> = found.rdma()?.into_iter().filter(|port| listed.contains(&port.address)).collect();
    if ports.is_empty() {
        return Err(Gap::absent(format!("no RDMA function of {} is on the list of this node", found.shape)));
    }
    let uptime = host.proc("uptime")?.split(' ').next().and_then(|word| word.parse::<f64>().ok());
    if uptime.is_some_and(|uptime| uptime < LINK_SETTLING_SECONDS) {
        sample.gap("rdma_flaps", Gap::absent("not judged in the first 30 minutes after boot"));
    } else {
        worst(host, sample, "rdma_flaps", &ports, |port| {
            let link = names(&host.sys.join(file(port.address, "net"))).into_iter().next()?;
            host.sys_number(&file(port.address, &format!("net/{link}/carrier_down_count"))).ok()
        });
    }
    worst(host, sample, "rdma_errors", &ports, |port| {
        let counter = |name: &&str| {
            let path = format!("infiniband/{}/ports/1/hw_counters/{name}", port.device);
            host.sys_number(&file(port.address, &path)).ok()
        };
        ERRORS.iter().map(counter).sum()
    });
    Ok(())
}

/// The highest rate of a counter, and its port.
fn worst(
    host: &Host,
    sample: &mut Sample,
    signal: &'static str,
    ports: &[&Adapter],
    total: impl Fn(&Adapter) -> Option<f64>,
) {
    let totals =
        ports.iter().filter_map(|port| Some((FaultyDevice::new(port.address, port.device.clone()), total(port)?)));
    sample.worst_rate(signal, totals, host.now, Gap::unknown("no port has this counter"));
}
