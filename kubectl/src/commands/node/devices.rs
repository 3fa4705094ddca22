//! The accelerators of a node, from its agent: where each is, what it is called, and what it needs.

use command::page::Page;
use health::fleet::NodeState;
use health::hardware::device::{Device, FaultyDevice};
use health::rules::Severity;
use health::{Area, Report, SignalState, Verdict, collectors};
use serde::Serialize;

use crate::answer::Style;
use crate::catalog;
use crate::table::{or_dash, since};

/// A GPU or a port of the RDMA network.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeDevice {
    #[serde(flatten)]
    pub device: Device,
    /// "GPU", "RDMA", or "-" for a bridge or a switch of GPUs.
    #[serde(skip)]
    kind: &'static str,
    /// The worst of its problems.
    pub state: NodeState,
    /// What it takes to end that one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needs: Option<String>,
}

/// Those of a report: what the node has, and what is missing.
pub(super) fn of_report(report: &Report) -> Vec<NodeDevice> {
    let is_open = |state: &&SignalState| {
        state.verdict == Verdict::Problem && collectors::area(&state.signal) == Area::Accelerators
    };
    let open = || report.signals.iter().filter(is_open);
    let faulty: Vec<(&SignalState, &FaultyDevice)> =
        open().flat_map(|state| state.devices.iter().map(move |device| (state, device))).collect();
    let mut devices = report.devices.clone();
    for (state, device) in &faulty {
        if !device.address.is_empty() && !devices.iter().any(|known| known.address == device.address) {
            let is_gpu = state.signal.starts_with("gpus_");
            devices.push(Device { address: device.address.clone(), is_gpu, ..Device::default() });
        }
    }
    devices.sort_by(|a, b| (!a.is_gpu, &a.address).cmp(&(!b.is_gpu, &b.address)));
    let with_problem = |device: Device| {
        let is_listed = report.devices.iter().any(|known| known.address == device.address);
        let is_port = faulty.iter().any(|(state, it)| it.address == device.address && state.signal.starts_with("rdma"));
        let kind = match device.is_gpu {
            true => "GPU",
            false if is_listed || is_port => "RDMA",
            // A switch of GPUs, or a bridge of the bus.
            false => "-",
        };
        let worst = faulty.iter().filter(|(_, faulty)| faulty.address == device.address);
        let worst = worst.max_by_key(|(state, faulty)| (state.severity, faulty.action.is_some()));
        let state = match worst.map(|(state, _)| state.severity.unwrap_or_default()) {
            Some(Severity::Critical) => NodeState::Critical,
            Some(Severity::Warning) => NodeState::Warning,
            None => NodeState::Healthy,
        };
        let needs = worst.map(|(state, faulty)| catalog::need(&state.signal, Some(faulty)));
        NodeDevice { device, kind, state, needs }
    };
    devices.into_iter().map(with_problem).collect()
}

pub(super) fn show(page: &mut Page, devices: &[NodeDevice], style: Style) {
    if devices.is_empty() {
        return;
    }
    page.line("");
    let row = |NodeDevice { device, kind, state, needs }: &NodeDevice| {
        let number = |number: Option<String>| or_dash(number.unwrap_or_default());
        let event = device.last_event.as_ref().map(|event| match device.last_event_unix_millis {
            Some(millis) => format!("{event}, {} ago", since(millis, style)),
            None => event.clone(),
        });
        vec![
            (*kind).to_owned(),
            number(device.slot.map(|slot| slot.to_string())),
            device.address.clone(),
            number(device.uuid.clone().or_else(|| device.names.clone())),
            number(device.numa.map(|numa| numa.to_string())),
            state.to_string(),
            number(device.port_state.clone()),
            number(event),
            number(needs.clone()),
        ]
    };
    let head = ["DEVICE", "SLOT", "ADDRESS", "NAME", "NUMA", "STATE", "LINK", "LAST EVENT", "NEEDS"];
    page.columns(&head, devices.iter().map(row));
}
