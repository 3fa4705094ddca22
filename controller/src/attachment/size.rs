//! What a user's own VnicAttachment takes in etcd with a status: at most 2 KB, and where it would be more, the status says less.
//! What a profile made is never too large, by the definitions. Pure.

use std::net::IpAddr;

use api::{FIELD_MANAGER, NAME_AND_SPEC_MAX, OBJECT_MAX, OnDelete, VnicAttachment, VnicAttachmentStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde::Serialize;

use super::writers::{entries, text};
use crate::profile::stamp::profile_of;

/// The longest text of an IPv6 address; of a network, with its prefix.
const LONGEST_ADDRESS: usize = 39;
const LONGEST_NETWORK: usize = 43;
/// What the API server notes of the write of a status, as it will be.
const STATUS: &str = concat!(
    r#"{"apiVersion":"oke.oraclecloud.com/v1alpha1","fieldsType":"FieldsV1","fieldsV1":{"f:status":{}},"#,
    r#""manager":"oke-node-controller","operation":"Update","subresource":"status","time":"2026-11-22T03:30:50Z"},"#
);

/// How many bytes too many it would take.
#[must_use]
pub fn excess(object: &VnicAttachment, status: &VnicAttachmentStatus) -> usize {
    if profile_of(object).is_some() {
        return 0;
    }
    let mut whole = VnicAttachment { status: Some(status.clone()), ..object.clone() };
    // etcd has its version beside it.
    (whole.metadata.resource_version, whole.metadata.managed_fields) = (None, None);
    let name_and_spec = object.metadata.name.as_ref().map_or(0, String::len) + stored(&object.spec);
    let unseen = unseen(object).min(NAME_AND_SPEC_MAX.saturating_sub(name_and_spec));
    // A line ends it.
    (stored(&whole) + 1 + of_writers(object) + unseen).saturating_sub(OBJECT_MAX)
}

/// How many bytes the list of writers takes once a status is written.
fn of_writers(object: &VnicAttachment) -> usize {
    let all = entries(object);
    if all.is_empty() {
        return 0;
    }
    let to_come = if all.iter().any(is_status) { 0 } else { STATUS.len() };
    let each = all.iter().map(|entry| {
        let fields = entry.fields_v1.as_ref().map_or(0, |fields| text(fields).len() + r#""fieldsV1":,"#.len());
        let rest = ManagedFieldsEntry { fields_v1: None, ..entry.clone() };
        stored(&rest) + fields + 1
    });
    each.sum::<usize>() + to_come + r#""managedFields":[],"#.len()
}

fn is_status(entry: &ManagedFieldsEntry) -> bool {
    entry.manager.as_deref() == Some(FIELD_MANAGER) && entry.subresource.as_deref() == Some("status")
}

/// The bytes of something in etcd, as the API server writes JSON.
fn stored(value: &impl Serialize) -> usize {
    // What was read as JSON is written as such.
    let text = serde_json::to_string(value).unwrap_or_default();
    let escaped = |char: char| match char {
        '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => 6,
        other => other.len_utf8(),
    };
    text.chars().map(escaped).sum()
}

/// The most that a spec may take beside what is known of it: who says `false` or `[]` has said nothing, and an IPv6 address
/// can be written in many ways.
fn unseen(object: &VnicAttachment) -> usize {
    let (spec, vnic) = (&object.spec, &object.spec.vnic);
    let silent = [
        (vnic.ipv4_count == 0, r#""ipv4Count":0,"#),
        (vnic.ipv6_count == 0, r#""ipv6Count":0,"#),
        (vnic.nsg_ids.is_empty(), r#""nsgIds":[],"#),
        (vnic.routes.is_empty(), r#""routes":[],"#),
        (vnic.allowed_namespaces.is_empty(), r#""allowedNamespaces":[],"#),
        (vnic.freeform_tags.is_empty(), r#""freeformTags":{},"#),
        (!vnic.skip_source_dest_check, r#""skipSourceDestCheck":false,"#),
        (!vnic.assign_public_ip, r#""assignPublicIp":false,"#),
        (vnic.on_delete == OnDelete::Detach, r#""onDelete":"Detach","#),
        (spec.requested_addresses.is_empty(), r#""requestedAddresses":[],"#),
    ];
    let silent = silent.iter().filter(|(is, _)| *is).map(|(_, text)| text.len());
    let via = vnic.routes.iter().filter_map(|route| route.via);
    let addresses = spec.requested_addresses.iter().copied().chain(via).filter(IpAddr::is_ipv6);
    let networks = vnic.routes.iter().map(|route| route.destination).filter(|it| it.is_ipv6());
    silent.sum::<usize>()
        + addresses.map(|it| LONGEST_ADDRESS.saturating_sub(it.to_string().len())).sum::<usize>()
        + networks.map(|it| LONGEST_NETWORK.saturating_sub(it.to_string().len())).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::attachment::sample::attachment;
    use crate::attachment::writers::compact;

    #[test]
    fn what_is_kept_of_the_list_of_writers_counts_as_the_list() {
        let mut whole = attachment("a", 1);
        let spec = json!({ "manager": "kubectl", "operation": "Apply", "fieldsV1": { "f:spec": { "f:vnic": {} } } });
        whole.metadata.managed_fields = serde_json::from_value(json!([spec])).unwrap();
        let mut kept = whole.clone();
        compact(&mut kept);
        assert_ne!(kept, whole);
        let bytes = format!("\"managedFields\":[{spec},],").len() + STATUS.len();
        assert_eq!((of_writers(&whole), of_writers(&kept)), (bytes, bytes));
    }
}
