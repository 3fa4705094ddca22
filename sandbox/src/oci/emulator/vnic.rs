//! VNICs: read and change.

use serde_json::{Value, json};

use super::message::{check_version, invalid};
use super::state::{State, VnicRecord};
use super::{AVAILABILITY_DOMAIN, Emulator, Outcome, Request, Response, timestamp};

/// The fields that may be changed.
const CHANGEABLE: [&str; 8] = [
    "displayName",
    "hostnameLabel",
    "nsgIds",
    "skipSourceDestCheck",
    "freeformTags",
    "definedTags",
    "securityAttributes",
    "routeTableId",
];

impl Emulator {
    pub(super) fn get_vnic(&self, state: &State, id: &str) -> Outcome {
        let record = state.vnic(id)?;
        Ok(Response::object(self.vnic_document(record), record.version))
    }

    pub(super) fn update_vnic(&self, state: &mut State, id: &str, request: &Request) -> Outcome {
        let changes = request.json()?;
        check_version(request, state.vnic(id)?.version)?;
        if let Some(name) = changes.keys().find(|name| !CHANGEABLE.contains(&name.as_str())) {
            return Err(invalid(format!("{name} cannot be changed")));
        }
        if let Some(record) = state.vnics.values_mut().find(|record| record.vnic.id.as_str() == id) {
            record.fields.extend(changes.into_iter().filter(|(_, value)| !value.is_null()));
            record.version += 1;
        }
        self.get_vnic(state, id)
    }

    pub(in crate::oci) fn vnic_document(&self, record: &VnicRecord) -> Value {
        let VnicRecord { vnic, fields, created, .. } = record;
        let is_ready = vnic.primary || created.elapsed().is_ok_and(|age| age >= self.settings().provisioning);
        let mut document = json!({
            "id": vnic.id,
            "availabilityDomain": AVAILABILITY_DOMAIN,
            "compartmentId": vnic.subnet.compartment,
            "displayName": vnic.display_name,
            "isPrimary": vnic.primary,
            "lifecycleState": if is_ready { "AVAILABLE" } else { "PROVISIONING" },
            // In capital letters, as the real one: clients must ignore the case.
            "macAddress": vnic.mac.to_string().to_uppercase(),
            "subnetId": vnic.subnet.id,
            "privateIp": vnic.address.ipv4,
            "publicIp": null,
            "nsgIds": [],
            "skipSourceDestCheck": false,
            "freeformTags": {},
            "definedTags": {},
            "timeCreated": timestamp(*created),
        });
        let Some(all) = document.as_object_mut() else { return document };
        if vnic.subnet.blocks.ipv6.is_some() {
            let ipv6 = vnic.address.ipv6.into_iter().chain(vnic.secondary.ipv6.iter().flatten().copied());
            all.insert("ipv6Addresses".to_owned(), json!(ipv6.collect::<Vec<_>>()));
        }
        all.extend(fields.clone());
        document
    }
}
