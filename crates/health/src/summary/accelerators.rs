//! What a summary says about accelerators.

use serde::{Deserialize, Deserializer, Serialize};

use super::Check;
use crate::collector::Area;
use crate::collectors;
use crate::hardware::message_faults;
use crate::report::{Report, SignalState, Verdict};

/// Where what an agent knows about accelerators is from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AcceleratorSources {
    /// Whether it reads kernel messages: without the capability SYSLOG it sees the devices' files only.
    pub kernel_messages: bool,
}

impl AcceleratorSources {
    /// Of a report; none where nothing of accelerators was measured.
    pub(super) fn of(report: &Report) -> Option<Self> {
        // Not Unknown: a collector that hangs says nothing about what the node has.
        let is_measured = |state: &&SignalState| matches!(state.verdict, Verdict::Healthy | Verdict::Problem);
        let measured = report.signals.iter().filter(is_measured).map(|state| state.signal.as_str());
        let of_them: Vec<&str> = measured.filter(|name| collectors::area(name) == Area::Accelerators).collect();
        let kernel_messages = of_them.iter().any(|name| message_faults::is_of_messages(name));
        (!of_them.is_empty()).then_some(Self { kernel_messages })
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
    use crate::rules::Severity;
    use crate::summary::Summary;

    #[test]
    fn controllers_that_know_two_areas_read_a_summary_with_accelerators() {
        let signals = vec![SignalState {
            verdict: Verdict::Problem,
            severity: Some(Severity::Critical),
            ..SignalState::blank(collectors::signal("gpus_missing").unwrap(), 60, 1000)
        }];
        let summary = Summary::default().with(&Report { signals, ..Report::default() });
        assert_eq!(summary.accelerators, Some(AcceleratorSources { kernel_messages: false }));
        let text = serde_json::to_value(&summary).unwrap();
        assert_eq!(text["checks"][0]["area"], "host");
        let read: Summary = serde_json::from_value(text).unwrap();
        assert_eq!((read.worst(Area::Accelerators), read.worst(Area::Host)), (Some(Severity::Critical), None));
    }
}
