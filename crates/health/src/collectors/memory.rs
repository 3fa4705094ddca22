//! Stalls for lack of memory, and processes that the kernel killed for it.

use crate::collector::{Kind, MINUTE, NO_PRIVILEGE, Sample};
use crate::host::Host;
use crate::signal::{Area, Gap, Signal, Unit};

pub(super) const KIND: Kind = Kind {
    area: Area::Host,
    name: "memory",
    every: MINUTE,
    privilege: NO_PRIVILEGE,
    collect,
    signals: &[
        Signal {
            name: "memory_pressure",
            unit: Unit::Percent,
            source: "`/proc/pressure/memory`: full avg60",
            why: "All programs of the host wait for memory during this share of time.",
            remedy: "Reserve more memory for the host (`reserved_memory`), set memory limits of pods, or use a larger shape.",
        },
        Signal {
            name: "oom_kills",
            unit: Unit::PerMinute,
            source: "`/proc/vmstat`: oom_kill",
            why: "The kernel killed processes. One kill is a pod at its own limit; many are a host or a job in a loop.",
            remedy: "Raise the limit of the pod that is killed again and again; `dmesg` names the processes.",
        },
    ],
};

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    // The file is there or can be read only where PSI is switched on.
    let pressure = host.proc_if_present("pressure/memory");
    let share = pressure.and_then(|text| text.ok_or_else(|| Gap::absent("the kernel runs without psi=1")));
    let share = share.and_then(|text| {
        let full = text.lines().find_map(|line| line.strip_prefix("full "));
        let avg60 = full.and_then(|rest| rest.split(' ').find_map(|word| word.strip_prefix("avg60=")));
        let share = avg60.and_then(|word| word.parse().ok());
        share.map(|share| (share, String::new())).ok_or_else(|| Gap::unknown("no avg60 in /proc/pressure/memory"))
    });
    sample.result("memory_pressure", share);
    let text = host.proc("vmstat")?;
    let total = text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse::<f64>().ok());
    let total = total.ok_or_else(|| Gap::unknown("no oom_kill in /proc/vmstat"))?;
    sample.rate("oom_kills", total, host.now, format!("{total} since boot"));
    Ok(())
}
