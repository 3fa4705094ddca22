//! The processors' frequency governor on nodes with accelerators.

use crate::collector::{FIVE_MINUTES, Kind, NO_PRIVILEGE, Sample};
use crate::hardware::inventory::Inventory;
use crate::host::{Host, names};
use crate::signal::{Area, Gap, Signal, Unit};

pub(crate) const KIND: Kind = Kind {
    area: Area::Accelerators,
    name: "governor",
    every: FIVE_MINUTES,
    privilege: NO_PRIVILEGE,
    collect,
    signals: &[Signal {
        name: "slow_governors",
        unit: Unit::Count,
        source: "`/sys/devices/system/cpu/cpufreq/policy*/scaling_governor`",
        why: "Processors that save power answer GPUs and network adapters later, so jobs slow down.",
        remedy: "Set the governor `performance` on the node, for example with `tuned-adm profile throughput-performance`.",
    }],
};

const FOLDER: &str = "devices/system/cpu/cpufreq";

/// `schedutil` follows the load without delay where the driver is cppc or amd-pstate.
const FAST_GOVERNORS: &[&str] = &["performance", "schedutil"];

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    Inventory::of(host, &mut sample.memory.functions)?;
    let policies = names(&host.sys.join(FOLDER));
    let governor = |name: &String| host.sys(&format!("{FOLDER}/{name}/scaling_governor")).ok();
    let governors: Vec<String> =
        policies.iter().filter(|name| name.starts_with("policy")).filter_map(governor).collect();
    if governors.is_empty() {
        return Err(Gap::absent("this kernel does not set the frequency of processors"));
    }
    let slow: Vec<&str> =
        governors.iter().map(|text| text.trim()).filter(|name| !FAST_GOVERNORS.contains(name)).collect();
    let first =
        slow.first().map_or_else(String::new, |name| format!("{name} on {} of {}", slow.len(), governors.len()));
    sample.value("slow_governors", slow.len() as f64, first);
    Ok(())
}
