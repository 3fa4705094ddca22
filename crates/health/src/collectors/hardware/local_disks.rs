//! How many of the shape's local disks there are.

use crate::collector::{FIVE_MINUTES, Kind, NO_PRIVILEGE, Sample};
use crate::hardware::shapes::Shape;
use crate::host::{Host, names};
use crate::signal::{Area, Gap, Signal, Unit};

pub(crate) const KIND: Kind = Kind {
    area: Area::Host,
    name: "local_disks",
    every: FIVE_MINUTES,
    privilege: NO_PRIVILEGE,
    collect,
    signals: &[Signal {
        name: "local_disks_missing",
        unit: Unit::Count,
        source: "`/sys/class/nvme` and the local disks of the shape",
        why: "A local NVMe disk that the node does not show takes its data away, or a RAID of them.",
        remedy: "Look for `nvme` in the node's kernel log; reboot the node, then report the host to Oracle.",
    }],
};

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    let shape = host.facts.shape.as_deref().unwrap_or_default();
    let Some(expected) = Shape::of(shape).and_then(|row| row.nvme) else {
        return Err(Gap::absent("how many local disks this shape has is not known"));
    };
    let controllers = names(&host.sys.join("class/nvme"));
    // A controller that was taken out of use keeps its folder, with the state `dead`.
    let is_live =
        |name: &&String| host.sys(&format!("class/nvme/{name}/state")).is_ok_and(|state| state.trim() == "live");
    let live = controllers.iter().filter(is_live).count();
    let dead: Vec<&str> = controllers.iter().filter(|name| !is_live(name)).map(String::as_str).collect();
    let dead = if dead.is_empty() { String::new() } else { format!("; not live: {}", dead.join(", ")) };
    sample.value("local_disks_missing", expected.saturating_sub(live) as f64, format!("{live} of {expected}{dead}"));
    Ok(())
}
