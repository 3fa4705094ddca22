//! Whether the kubelet says that it is healthy, and how fast.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::MINUTE;
use crate::collector::{Area, Gap, Kind, Sample, Signal, Unit};
use crate::host::Host;

/// The kubelet's default healthzPort, on loopback.
const PORT: u16 = 10248;

const DEADLINE: Duration = Duration::from_secs(3);

const REMEDY: &str =
    "Run `journalctl -u kubelet` and `systemctl status kubelet` on the node; restart it when it hangs.";

pub(super) const KIND: Kind = Kind {
    area: Area::Host,
    name: "kubelet",
    every: MINUTE,
    privilege: "`hostNetwork`: the kubelet listens on loopback",
    collect,
    signals: &[
        Signal {
            name: "kubelet_healthy",
            unit: Unit::Yes,
            source: "`http://127.0.0.1:10248/healthz`",
            why: "A kubelet that is not healthy starts and stops no pods; the Node turns NotReady 40 s later.",
            remedy: REMEDY,
        },
        Signal {
            name: "kubelet_latency",
            unit: Unit::Milliseconds,
            source: "`http://127.0.0.1:10248/healthz`",
            why: "A slow answer is the first sign of a host without CPU time, memory or disk throughput.",
            remedy: REMEDY,
        },
    ],
};

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
    let answer = match host.system.get(address, "/healthz", DEADLINE) {
        Ok(answer) => answer,
        Err(error) => {
            sample.value("kubelet_healthy", 0.0, format!("no answer from {address}: {error}"));
            return Err(Gap::unknown("the kubelet does not answer"));
        }
    };
    let is_ok = if answer.status == 200 { 1.0 } else { 0.0 };
    sample.value("kubelet_healthy", is_ok, format!("status {}: {:.120}", answer.status, answer.body.trim()));
    sample.value("kubelet_latency", answer.took.as_secs_f64() * 1000.0, "");
    Ok(())
}
