//! Ports of the RDMA network: only those on the shape's list. A second port of the front end is down by design.

use crate::collector::{Kind, MINUTE, NO_PRIVILEGE, Sample};
use crate::hardware::device::{Device, FaultyDevice};
use crate::hardware::inventory::{Adapter, Inventory, file, numa};
use crate::hardware::shapes::RdmaRow;
use crate::host::{Host, names};
use crate::signal::{Area, Gap, Signal, Unit};

const PORT: &str = "`/sys/bus/pci/devices/ADDRESS/infiniband/*/ports/1/` of the shape's RDMA functions";

pub(crate) const KIND: Kind = Kind {
    area: Area::Accelerators,
    name: "rdma_ports",
    every: MINUTE,
    privilege: NO_PRIVILEGE,
    collect,
    signals: &[
        Signal {
            name: "rdma_ports_missing",
            unit: Unit::Count,
            source: "`/sys/bus/pci/devices/ADDRESS/infiniband` of the shape's RDMA functions",
            why: "Jobs that use all of the shape's ports do not start, or wait for this node.",
            remedy: "Look for `mlx5_core` in the node's kernel log; reboot the node, then report the host to Oracle.",
        },
        Signal {
            name: "rdma_ports_down",
            unit: Unit::Count,
            source: PORT,
            why: "Jobs lose their connections over this port and end.",
            remedy: "Compare with other nodes: ports of one switch fail together. If it is this node only, reboot it, then report the host to Oracle.",
        },
        Signal {
            name: "rdma_ports_slow",
            unit: Unit::Count,
            source: PORT,
            why: "A port with a lower rate slows all nodes of a job down.",
            remedy: "Reboot the node; if the rate stays, report the host to Oracle.",
        },
        Signal {
            name: "rdma_ports_without_verbs",
            unit: Unit::Count,
            source: "`/sys/bus/pci/devices/ADDRESS/infiniband_verbs` of the shape's RDMA functions",
            why: "Without a verbs device programs cannot use the port.",
            remedy: "Load the module `ib_uverbs` on the node; check the image's RDMA packages.",
        },
        Signal {
            name: "rdma_ports_without_address",
            unit: Unit::Count,
            source: "`/sys/bus/pci/devices/ADDRESS/infiniband/*/ports/1/{gids,gid_attrs/types}` of the shape's RDMA functions",
            why: "Without an address (a GID of type RoCE v2 that is not link-local) no connection is possible.",
            remedy: "See `hpc_plugins_pending` and `cloud_agent_plugins`: the Oracle Cloud Agent configures the addresses.",
        },
    ],
};

/// The driver has 256 places for addresses; those in use are the first.
const MAX_GIDS: usize = 16;

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    let found = Inventory::of(host, &mut sample.memory.functions)?;
    if found.has_unknown_rdma() {
        return unknown_shape(host, sample, &found);
    }
    let ports = found.rdma()?;
    let row = found.row.and_then(|row| row.rdma.as_ref());
    let listed = row.map(RdmaRow::functions).unwrap_or_default();
    for port in &ports {
        see(host, sample, port, listed.iter().position(|address| *address == port.address));
    }
    let expected = row.map_or(0, |row| row.count.max(listed.len()));
    let absent: Vec<_> = listed.iter().filter(|at| !ports.iter().any(|port| port.address == **at)).collect();
    let places: Vec<String> = absent.iter().map(ToString::to_string).collect();
    let missing = expected.saturating_sub(ports.len());
    let places = if places.is_empty() { String::new() } else { format!("; none at {}", places.join(", ")) };
    let detail = format!("{} of {expected}{places}", ports.len());
    let devices = absent.into_iter().map(|at| FaultyDevice::new(at, "no RDMA device")).collect();
    sample.faulty_with("rdma_ports_missing", missing as f64, detail, devices);
    if ports.is_empty() {
        return Err(Gap::absent("this node shows no RDMA port"));
    }
    count(sample, "rdma_ports_down", &ports, |port| down(host, port));
    match row.and_then(|row| row.gbps) {
        Some(gbps) => count(sample, "rdma_ports_slow", &ports, |port| slow(host, port, gbps)),
        None => sample.gap("rdma_ports_slow", Gap::absent(format!("the rate of {} is not known", found.shape))),
    }
    count(sample, "rdma_ports_without_verbs", &ports, |port| without_verbs(host, port));
    count(sample, "rdma_ports_without_address", &ports, |port| (!has_address(host, port)).then(String::new));
    Ok(())
}

/// On a shape of which no source names the RDMA functions, a port that had a link since boot must have one: one that is down by design
/// never had.
fn unknown_shape(host: &Host, sample: &mut Sample, found: &Inventory) -> Result<(), Gap> {
    let had_link = |port: &&Adapter| {
        let links = link(host, port).map(|link| format!("net/{link}/carrier_up_count"));
        let ups = links.and_then(|path| host.sys_number(&file(port.address, &path)).ok());
        ups.is_some_and(|ups| ups > 0.0) || down(host, port).is_none()
    };
    let ports: Vec<&Adapter> = found.adapters.iter().filter(had_link).collect();
    for port in &found.adapters {
        see(host, sample, port, None);
    }
    count(sample, "rdma_ports_down", &ports, |port| down(host, port));
    count(sample, "rdma_ports_without_verbs", &ports, |port| without_verbs(host, port));
    let (seen, judged, shape) = (found.adapters.len(), ports.len(), &found.shape);
    Err(Gap::absent(format!(
        "the RDMA functions of the shape {shape} are not known: of {seen} adapters, {judged} that had a link since boot are judged"
    )))
}

/// Counts the ports of which something is wrong, and names them.
fn count(sample: &mut Sample, signal: &'static str, ports: &[&Adapter], wrong: impl Fn(&Adapter) -> Option<String>) {
    let faulty = |port: &&Adapter| {
        let state = format!("{} {}", port.device, wrong(port)?);
        Some(FaultyDevice::new(port.address, state.trim_end()))
    };
    sample.faulty(signal, ports.iter().filter_map(faulty).collect());
}

/// For the table of devices.
fn see(host: &Host, sample: &mut Sample, port: &Adapter, slot: Option<usize>) {
    let words = |name: &str| read(host, port, name).and_then(|text| Some(text.split_once(": ")?.1.to_owned()));
    let rate = read(host, port, "rate").and_then(|text| Some(text.split_once(" (")?.0.to_owned()));
    let state: Vec<String> = [words("state"), words("phys_state"), rate].into_iter().flatten().collect();
    let names = [Some(port.device.clone()), link(host, port)].into_iter().flatten().collect::<Vec<_>>().join(" ");
    let (address, numa) = (port.address.to_string(), numa(host, port.address));
    let port_state = Some(state.join(", "));
    sample.sees(Device { address, slot, names: Some(names), numa, port_state, ..Device::default() });
}

fn link(host: &Host, port: &Adapter) -> Option<String> {
    names(&host.sys.join(file(port.address, "net"))).into_iter().next()
}

fn without_verbs(host: &Host, port: &Adapter) -> Option<String> {
    names(&host.sys.join(file(port.address, "infiniband_verbs"))).is_empty().then(String::new)
}

fn read(host: &Host, port: &Adapter, name: &str) -> Option<String> {
    let text = host.sys(&file(port.address, &format!("infiniband/{}/ports/1/{name}", port.device))).ok()?;
    Some(text.trim().to_owned())
}

/// `4: ACTIVE` and `5: LinkUp` are fine.
fn down(host: &Host, port: &Adapter) -> Option<String> {
    let (state, physical) = (read(host, port, "state")?, read(host, port, "phys_state")?);
    (!state.starts_with("4:") || !physical.starts_with("5:")).then(|| format!("is {state}, {physical}"))
}

/// `200 Gb/sec (4X HDR)`.
fn slow(host: &Host, port: &Adapter, gbps: f64) -> Option<String> {
    let rate = read(host, port, "rate")?;
    let number: f64 = rate.split(' ').next()?.parse().ok()?;
    (number > 0.0 && number < gbps).then(|| format!("has {number} of {gbps} Gb/s"))
}

/// The type of an unused place answers EINVAL.
fn has_address(host: &Host, port: &Adapter) -> bool {
    let is_address = |number: usize| {
        let gid = read(host, port, &format!("gids/{number}")).unwrap_or_default();
        let is_used = gid.bytes().any(|byte| byte.is_ascii_hexdigit() && byte != b'0');
        let is_usable = is_used && !gid.starts_with("fe80:");
        is_usable && read(host, port, &format!("gid_attrs/types/{number}")).is_some_and(|kind| kind != "IB/RoCE v1")
    };
    (0..MAX_GIDS).any(is_address)
}
