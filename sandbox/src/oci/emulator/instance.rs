//! Instances and shapes: read, and restarted.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use vcn::MachineKind;

use super::message::{invalid, missing, not_found, refuse};
use super::state::State;
use super::{AVAILABILITY_DOMAIN, Emulator, OperationResult, Outcome, Request, Response, Task};
use crate::network::Instance;

/// When every instance and subnet was created.
pub(super) const TIME_CREATED: &str = "2026-01-01T00:00:00.000Z";

impl Emulator {
    pub(super) fn get_instance(&self, state: &State, id: &str) -> Outcome {
        let instance = self.vcn().inventory().by_id(id).ok_or_else(not_found)?;
        Ok(Response::object(instance_document(state, &instance), 1))
    }

    /// Restarts an instance, which must be running. The service knows more actions than those that the tests use.
    pub(super) fn act_on_instance(&self, state: &mut State, id: &str, request: &Request) -> Outcome<OperationResult> {
        let instance = self.vcn().inventory().by_id(id).ok_or_else(not_found)?;
        match request.query("action").ok_or_else(|| missing("action"))? {
            "SOFTRESET" | "RESET" => {}
            other => return Err(invalid(format!("the action {other} is not emulated"))),
        }
        if let Some(other) = state.instance_states.get(&instance.name).filter(|other| *other != "RUNNING") {
            return Err(refuse(409, "IncorrectState", format!("the instance is {other}")));
        }
        state.instance_states.insert(instance.name.clone(), "STOPPING".to_owned());
        state.restarts.push(instance.name.clone());
        let response = Response::object(instance_document(state, &instance), 1);
        let later = Some((self.settings().restarting, Task::Restart(instance.name)));
        Ok(OperationResult { response, created: None, later })
    }

    /// It runs again, unless it was stopped or terminated meanwhile.
    pub(super) fn finish_restart(&self, node: &str) {
        let mut state = self.state();
        if state.instance_states.get(node).is_some_and(|now| now == "STOPPING" || now == "STOPPED") {
            state.instance_states.remove(node);
        }
    }

    /// The plugins that the instance's cloud agent reports.
    pub(super) fn list_agent_plugins(&self, state: &State, id: &str, request: &Request) -> Outcome {
        self.compartment(request)?;
        let instance = self.vcn().inventory().by_id(id).ok_or_else(not_found)?;
        let plugins = state.agent_plugins.get(&instance.name).into_iter().flatten();
        let each = plugins
            .map(|(name, plugin)| json!({ "name": name, "status": plugin.status, "timeLastUpdatedUtc": TIME_CREATED }));
        Response::page(request, self.settings().page, each)
    }

    /// The shapes of the instances there are.
    pub(super) fn list_shapes(&self, request: &Request) -> Outcome {
        self.compartment(request)?;
        let shapes: BTreeMap<String, (u32, MachineKind)> = {
            let instances = self.vcn().inventory().lock();
            let all = instances.values();
            all.map(|instance| (instance.shape.clone(), (instance.max_vnics, instance.kind))).collect()
        };
        let all = shapes.into_iter().map(|(shape, (most, kind))| {
            let mut document = json!({ "shape": shape, "ocpus": f64::from(most), "memoryInGBs": 64.0,
                "maxVnicAttachments": most, "networkPorts": if kind == MachineKind::BareMetal { 2 } else { 1 } });
            if let (true, Some(fields)) = (shape.ends_with(".Flex"), document.as_object_mut()) {
                let options = json!({ "min": 2, "max": f64::from(most), "defaultPerOcpu": 1.0 });
                fields.insert("isFlexible".to_owned(), Value::Bool(true));
                fields.insert("maxVnicAttachmentOptions".to_owned(), options);
            }
            document
        });
        Response::page(request, self.settings().page, all)
    }
}

pub(in crate::oci) fn instance_document(state: &State, instance: &Instance) -> Value {
    let mut document = json!({
        "id": instance.id,
        "availabilityDomain": AVAILABILITY_DOMAIN,
        "compartmentId": instance.compartment,
        "displayName": instance.name,
        "lifecycleState": state.instance_states.get(&instance.name).map_or("RUNNING", String::as_str),
        "region": "iad",
        "shape": instance.shape,
        "shapeConfig": {
            "ocpus": f64::from(instance.max_vnics),
            "maxVnicAttachments": instance.max_vnics,
        },
        "metadata": instance.metadata,
        "freeformTags": {},
        "definedTags": {},
        "timeCreated": TIME_CREATED,
    });
    if let Some(all) = document.as_object_mut() {
        if let Some(plugins) = state.agent_plugins.get(&instance.name) {
            let each = plugins.iter().map(|(name, plugin)| json!({ "name": name, "desiredState": plugin.desired }));
            let config = json!({ "isMonitoringDisabled": false, "isManagementDisabled": false,
                "areAllPluginsDisabled": false, "pluginsConfig": each.collect::<Vec<_>>() });
            all.insert("agentConfig".to_owned(), config);
        }
        all.extend(instance.fields.clone());
    }
    document
}
