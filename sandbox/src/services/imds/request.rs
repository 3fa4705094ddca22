//! One request to the metadata service: caller, permission, answer. Pure but for the inventory.

use std::net::IpAddr;

use hyper::header::{AUTHORIZATION, HeaderMap};
use hyper::{Method, StatusCode};
use serde_json::Value;

use super::{MetadataFault, document};
use crate::network::Inventory;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) content_type: &'static str,
    pub(crate) body: String,
}

/// Answers a request for `path` from `source`.
pub(crate) fn answer(
    inventory: &Inventory,
    source: IpAddr,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
) -> Answer {
    let Some(name) = inventory.holder_of_primary(source) else {
        return plain(StatusCode::NOT_FOUND, "no instance has this address on its primary VNIC");
    };
    let fault = inventory.lock().get(&name).and_then(|instance| instance.fault.clone());
    if let Some(MetadataFault::Status(status)) = fault {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        return plain(status, "injected fault");
    }
    if let Some(refusal) = refusal(method, path, headers) {
        return refusal;
    }
    let mut tree = inventory.lock().get(&name).map(document::tree);
    let vnics = tree.as_mut().and_then(|tree| tree.get_mut("vnics")?.as_array_mut());
    if let (Some(vnics), Some(MetadataFault::Without(hidden))) = (vnics, fault) {
        vnics.retain(|vnic| vnic.get("vnicId").and_then(Value::as_str) != Some(hidden.as_str()));
    }
    if path.starts_with("/opc/v2/identity/") {
        add_identity(inventory, &name, tree.as_mut());
    }
    let found = tree.as_ref().and_then(|tree| find(tree, path));
    match found {
        None => plain(StatusCode::NOT_FOUND, "not found"),
        Some(Value::String(text)) => with_type(StatusCode::OK, "text/plain", text.clone()),
        Some(value) => with_type(StatusCode::OK, "application/json", format!("{value:#}")),
    }
}

/// Certificates are created on the first request.
fn add_identity(inventory: &Inventory, name: &str, tree: Option<&mut Value>) {
    let id = inventory.lock().get(name).map(|instance| instance.id.clone());
    let identity = inventory.authority().zip(id).and_then(|(authority, id)| authority.identity(id.as_str()).ok());
    if let (Some(identity), Some(Value::Object(fields))) = (identity, tree) {
        fields.insert("identity".to_owned(), identity);
    }
}

/// The rules of version 2, in the order the real service applies them: the path, the proxy, the header.
fn refusal(method: &Method, path: &str, headers: &HeaderMap) -> Option<Answer> {
    if method != Method::GET && method != Method::HEAD {
        return Some(plain(StatusCode::METHOD_NOT_ALLOWED, "GET or HEAD only"));
    }
    // Version 1 and OpenStack's paths are switched off, as on every instance that OKE makes.
    if !path.starts_with("/opc/v2/") {
        return Some(plain(StatusCode::NOT_FOUND, "not found"));
    }
    if ["forwarded", "x-forwarded-for", "x-forwarded-host"].iter().any(|name| headers.contains_key(*name)) {
        return Some(plain(StatusCode::FORBIDDEN, "forwarded requests are refused"));
    }
    if headers.get(AUTHORIZATION).is_none_or(|value| value != "Bearer Oracle") {
        return Some(plain(StatusCode::UNAUTHORIZED, "the header \"Authorization: Bearer Oracle\" is missing"));
    }
    None
}

/// The place that a path names: `/opc/v2/vnics/0/macAddr`, with or without a slash at the end.
fn find<'a>(tree: &'a Value, path: &str) -> Option<&'a Value> {
    let mut place = tree;
    for part in path.strip_prefix("/opc/v2/")?.trim_end_matches('/').split('/') {
        place = match place {
            Value::Object(fields) => fields.get(part)?,
            Value::Array(items) => items.get(part.parse::<usize>().ok()?)?,
            _ => return None,
        };
    }
    Some(place)
}

fn plain(status: StatusCode, text: &str) -> Answer {
    with_type(status, "text/plain", text.to_owned())
}

fn with_type(status: StatusCode, content_type: &'static str, body: String) -> Answer {
    Answer { status, content_type, body }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_of_version_2_apply() {
        let oracle = (AUTHORIZATION.as_str(), "Bearer Oracle");
        let cases = [
            (vec![oracle], "/opc/v2/instance/", None),
            (vec![], "/opc/v2/instance/", Some(401)),
            (vec![(AUTHORIZATION.as_str(), "Bearer oracle")], "/opc/v2/instance/", Some(401)),
            (vec![oracle, ("x-forwarded-for", "10.0.0.1")], "/opc/v2/instance/", Some(403)),
            (vec![oracle, ("forwarded", "for=10.0.0.1")], "/opc/v2/instance/", Some(403)),
            (vec![oracle], "/opc/v1/instance/", Some(404)),
            (vec![oracle], "/openstack/latest/", Some(404)),
        ];
        for (given, path, expected) in cases {
            let mut headers = HeaderMap::new();
            for (name, value) in &given {
                headers.insert(hyper::header::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
            }
            let status = refusal(&Method::GET, path, &headers).map(|answer| answer.status.as_u16());
            assert_eq!(status, expected, "{path} {given:?}");
        }
    }
}
