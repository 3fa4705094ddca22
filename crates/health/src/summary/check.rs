//! What is not healthy on a node, as a summary has it.

use serde::{Deserialize, Serialize};

use crate::hardware::device::FaultyDevice;
use crate::signal::Area;
use crate::verdict::{Action, NotMeasured, Severity, Verdict};

/// A signal or a condition of the agent that is not healthy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// The signal's name or the condition's reason.
    pub name: String,
    /// The object, if there can be several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// What it is about.
    pub area: Area,
    /// A problem, or unknown.
    pub verdict: Verdict,
    /// How bad a problem is.
    pub severity: Severity,
    /// What the agent does about it, if the controller permits.
    #[serde(default, skip_serializing_if = "Action::is_report")]
    pub action: Action,
    /// The state and its effect.
    pub message: String,
    /// The devices that it is about, where it is about devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<FaultyDevice>,
    /// Since when, in milliseconds since 1970.
    pub since_unix_millis: u64,
    /// Why a problem is not measured any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_measured: Option<NotMeasured>,
}

impl Check {
    /// A check for each device that it is about, named by the device's reason; the check itself where it is about none.
    pub fn per_device(&self) -> Vec<Self> {
        if self.devices.is_empty() || self.verdict != Verdict::Problem {
            return vec![self.clone()];
        }
        let of_device = |device: &FaultyDevice| Self {
            name: device.reason.clone().unwrap_or_else(|| self.name.clone()),
            subject: Some(device.address.clone())
                .filter(|address| !address.is_empty())
                .or_else(|| self.subject.clone()),
            message: device.sentence(&self.message),
            since_unix_millis: device.since_unix_millis.unwrap_or(self.since_unix_millis),
            devices: vec![device.clone()],
            ..self.clone()
        };
        self.devices.iter().map(of_device).collect()
    }

    pub(crate) fn rank(&self) -> impl Ord + '_ {
        (self.verdict, std::cmp::Reverse(self.severity), self.since_unix_millis, &self.name)
    }
}
