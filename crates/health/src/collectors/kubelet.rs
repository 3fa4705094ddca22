//! Whether the kubelet says that it is healthy, and how fast.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::cgroup::{Cgroups, UnitState};
use super::units::KUBELET;
use crate::collector::{Kind, MINUTE, Sample};
use crate::host::Host;
use crate::signal::{Area, Gap, Signal, Unit};

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
            source: "`http://127.0.0.1:10248/healthz` (`KUBELET_HEALTHZ_PORT`)",
            why: "A kubelet that is not healthy starts and stops no pods; the Node turns NotReady 40 s later.",
            remedy: REMEDY,
        },
        Signal {
            name: "kubelet_latency",
            unit: Unit::Milliseconds,
            source: "`http://127.0.0.1:10248/healthz` (`KUBELET_HEALTHZ_PORT`)",
            why: "A slow answer is the first sign of a host without CPU time, memory or disk throughput.",
            remedy: REMEDY,
        },
    ],
};

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    let port = host.facts.kubelet_port;
    if port == 0 {
        return Err(Gap::absent("the agent's setting KUBELET_HEALTHZ_PORT is 0"));
    }
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let answer = match host.system.get(address, "/healthz", DEADLINE) {
        Ok(answer) => answer,
        // A kubelet that runs and listens elsewhere, or nowhere, is not sick: a sick one accepts and does not answer.
        Err(error) if error.kind() == ErrorKind::ConnectionRefused && runs(host) => {
            let text = "runs and does not listen there: set KUBELET_HEALTHZ_PORT to its healthzPort, or to 0";
            return Err(Gap::unknown(format!("{address}: {error}; {KUBELET} {text}")));
        }
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

fn runs(host: &Host) -> bool {
    Cgroups::of(host).is_ok_and(|cgroups| cgroups.unit(KUBELET) == UnitState::Running)
}
