//! What a summary says about accelerators.

use serde::{Deserialize, Deserializer, Serialize};

use super::check::Check;
use crate::collectors;
use crate::collectors::hardware::message_faults;
use crate::report::{Report, SignalState};
use crate::signal::Area;
use crate::verdict::Verdict;

/// Where what an agent knows about accelerators is from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AcceleratorSources {
    /// Whether it reads kernel messages: without the capability SYSLOG it sees the devices' files only.
    pub kernel_messages: bool,
    /// How many GPUs the bus shows.
    pub gpus: u16,
    /// How many ports of the RDMA network there are.
    pub ports: u16,
}

impl AcceleratorSources {
    /// Of a report; none where nothing of accelerators was measured.
    pub(super) fn of(report: &Report) -> Option<Self> {
        // Not Unknown: a collector that hangs says nothing about what the node has.
        let is_measured = |state: &&SignalState| matches!(state.verdict, Verdict::Healthy | Verdict::Problem);
        let measured = report.signals.iter().filter(is_measured);
        let of_them: Vec<_> = measured.filter(|state| collectors::area(&state.signal) == Area::Accelerators).collect();
        let is_current = |state: &&&SignalState| state.not_measured.is_none();
        let kernel_messages =
            of_them.iter().filter(is_current).any(|state| message_faults::is_of_messages(&state.signal));
        let count = |is_gpu| {
            let count = report.devices.iter().filter(|device| device.is_gpu == is_gpu).count();
            u16::try_from(count).unwrap_or(u16::MAX)
        };
        (!of_them.is_empty()).then(|| Self { kernel_messages, gpus: count(true), ports: count(false) })
    }
}

/// The areas of some checks are known by their names: [`Area::Accelerators`].
pub(super) fn read_checks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Check>, D::Error> {
    let mut checks = Vec::<Check>::deserialize(deserializer)?;
    for check in checks.iter_mut().filter(|check| collectors::area(&check.name) == Area::Accelerators) {
        check.area = Area::Accelerators;
    }
    Ok(checks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::Summary;
    use crate::verdict::Severity;

    #[test]
    fn controllers_that_know_two_areas_read_a_summary_with_accelerators() {
        let signals = vec![SignalState {
            verdict: Verdict::Problem,
            severity: Some(Severity::Critical),
            ..SignalState::blank(collectors::signal("gpus_missing").unwrap(), 60, 1000)
        }];
        let summary = Summary::default().with(&Report { signals, ..Report::default() });
        assert_eq!(summary.accelerators, Some(AcceleratorSources::default()));
        let text = serde_json::to_value(&summary).unwrap();
        assert_eq!(text["checks"][0]["area"], "host");
        let read: Summary = serde_json::from_value(text).unwrap();
        assert_eq!((read.worst(Area::Accelerators), read.worst(Area::Host)), (Some(Severity::Critical), None));
    }
}
