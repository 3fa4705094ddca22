//! Hosts of bare-metal instances, and maintenance: only read.

use serde_json::{Value, json};
use vcn::MachineKind;

use super::instance::TIME_CREATED;
use super::message::{missing, not_found};
use super::state::State;
use super::{AVAILABILITY_DOMAIN, Emulator, Outcome, Request, Response};
use crate::network::identity::TENANCY;

impl Emulator {
    /// The list is of the root compartment, and an object with the hosts.
    pub(super) fn list_hosts(&self, state: &State, request: &Request) -> Outcome {
        let compartment = request.query("compartmentId").ok_or_else(|| missing("compartmentId"))?;
        if compartment != TENANCY {
            return Err(not_found());
        }
        let instances: Vec<_> = self.vcn().inventory().lock().values().cloned().collect();
        let hosts = instances.into_iter().filter(|instance| instance.kind == MachineKind::BareMetal).map(|instance| {
            let is_unhealthy = state.unhealthy_hosts.contains(&instance.name);
            json!({
                "id": instance.id.as_str().replace("ocid1.instance.", "ocid1.computehost."),
                "availabilityDomain": AVAILABILITY_DOMAIN, "compartmentId": TENANCY, "faultDomain": "FAULT-DOMAIN-1",
                "instanceId": instance.id, "shape": instance.shape, "lifecycleState": "OCCUPIED",
                "health": if is_unhealthy { "UNHEALTHY" } else { "HEALTHY" }, "hasImpactedComponents": is_unhealthy,
                "timeCreated": TIME_CREATED, "timeUpdated": TIME_CREATED,
            })
        });
        let mut page = Response::page(request, self.settings().page, hosts)?;
        page.body = page.body.map(|items: Value| json!({ "items": items }));
        Ok(page)
    }

    /// Maintenance of the compartment's instances, past ones included.
    pub(super) fn list_maintenance(&self, state: &State, request: &Request) -> Outcome {
        let compartment = self.compartment(request)?;
        let inventory = self.vcn().inventory().lock();
        let events = state.maintenance.iter().enumerate().filter_map(|(number, event)| {
            let instance = inventory.get(&event.node)?;
            Some(json!({
                "id": format!("ocid1.instancemaintenanceevent.oc1.iad.abuwcljtsandbox{number:010}"),
                "instanceId": instance.id, "compartmentId": compartment, "maintenanceCategory": "FLEXIBLE",
                "maintenanceReason": "HARDWARE_REPLACEMENT", "instanceAction": event.action,
                "alternativeResolutionActions": ["TERMINATE"], "timeWindowStart": "2026-12-01T08:00:00.000Z",
                "timeHardDueDate": "2026-12-15T08:00:00.000Z", "canReschedule": true, "timeCreated": TIME_CREATED,
                "lifecycleState": event.state, "createdBy": "SYSTEM",
            }))
        });
        let events: Vec<Value> = events.collect();
        drop(inventory);
        Response::page(request, self.settings().page, events.into_iter())
    }
}
