//! VNICs: read and change.

use std::time::Duration;

use serde_json::{Value, json};

use super::answer::{Answer, Asked, Outcome, invalid, not_found};
use super::api::Api;
use super::attachment::AVAILABILITY_DOMAIN;
use super::books::{Books, VnicRecord, check_version, etag};
use super::moment::rfc3339;
use crate::identity::COMPARTMENT;

/// What may be changed.
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

impl Api {
    pub(super) fn get_vnic(&self, books: &Books, id: &str) -> Outcome {
        let record = find(books, id)?;
        Ok(Answer::object(document(record, self.settings().provisioning), &etag(record.version)))
    }

    pub(super) fn update_vnic(&self, books: &mut Books, id: &str, asked: &Asked) -> Outcome {
        let body = asked.json()?;
        let changes = body.as_object().ok_or_else(|| invalid("the body is no object"))?;
        check_version(asked.header("if-match"), find(books, id)?.version)?;
        let record = books.vnics.values_mut().find(|record| record.vnic.id.as_str() == id).ok_or_else(not_found)?;
        for (name, value) in changes {
            if !CHANGEABLE.contains(&name.as_str()) {
                return Err(invalid(format!("{name} cannot be changed")));
            }
            if !value.is_null() {
                record.fields.insert(name.clone(), value.clone());
            }
        }
        record.version += 1;
        Ok(Answer::object(document(record, self.settings().provisioning), &etag(record.version)))
    }
}

fn find<'a>(books: &'a Books, id: &str) -> Outcome<&'a VnicRecord> {
    books.vnics.values().find(|record| record.vnic.id.as_str() == id).ok_or_else(not_found)
}

fn document(record: &VnicRecord, provisioning: Duration) -> Value {
    let VnicRecord { vnic, fields, created, .. } = record;
    let is_made = vnic.primary || created.elapsed().is_ok_and(|age| age >= provisioning);
    let mut document = json!({
        "id": vnic.id,
        "availabilityDomain": AVAILABILITY_DOMAIN,
        "compartmentId": COMPARTMENT,
        "displayName": vnic.display_name,
        "isPrimary": vnic.primary,
        "lifecycleState": if is_made { "AVAILABLE" } else { "PROVISIONING" },
        // In capital letters, as the real one: to be compared without regard to case.
        "macAddress": vnic.mac.to_string().to_uppercase(),
        "subnetId": vnic.subnet.id,
        "privateIp": vnic.address.ipv4,
        "publicIp": null,
        "nsgIds": [],
        "skipSourceDestCheck": false,
        "freeformTags": {},
        "definedTags": {},
        "timeCreated": rfc3339(*created),
    });
    let Some(all) = document.as_object_mut() else { return document };
    let ipv6 = vnic.address.ipv6.into_iter().chain(vnic.secondary.ipv6.iter().flatten().copied()).collect::<Vec<_>>();
    if vnic.subnet.blocks.ipv6.is_some() {
        all.insert("ipv6Addresses".to_owned(), json!(ipv6));
    }
    all.extend(fields.iter().map(|(name, value)| (name.clone(), value.clone())));
    document
}
