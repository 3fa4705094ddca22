//! Whether a time service disciplines the clock.

use crate::collector::{Kind, MINUTE, NO_PRIVILEGE, Sample};
use crate::host::Host;
use crate::signal::{Area, Gap, Signal, Unit};

const REMEDY: &str = "Check `chronyc tracking` on the host; OCI's time service is 169.254.169.254, UDP port 123. If chronyd is synchronized, add `rtcsync` to /etc/chrony.conf: without it, it leaves the kernel's flag as it is.";

pub(super) const KIND: Kind = Kind {
    area: Area::Host,
    name: "clock",
    every: MINUTE,
    privilege: NO_PRIVILEGE,
    collect,
    signals: &[
        Signal {
            name: "clock_unsynchronized",
            unit: Unit::Yes,
            source: "adjtimex(2): STA_UNSYNC",
            why: "A clock that drifts makes certificates and tokens invalid.",
            remedy: REMEDY,
        },
        Signal {
            name: "clock_error",
            unit: Unit::Milliseconds,
            source: "adjtimex(2): esterror",
            why: "Requests to OCI are refused when the clock is five minutes off; logs of nodes no longer line up before that.",
            remedy: REMEDY,
        },
    ],
};

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    let clock = host.system.clock().map_err(|error| Gap::unknown(format!("adjtimex: {error}")))?;
    sample.value("clock_unsynchronized", if clock.synchronized { 0.0 } else { 1.0 }, "");
    if clock.synchronized {
        sample.value("clock_error", clock.estimated_error_micros as f64 / 1000.0, "the kernel's estimate");
        return Ok(());
    }
    Err(Gap::unknown("the kernel estimates no error while the clock is not synchronized"))
}
