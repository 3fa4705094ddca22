//! Each validation rule of the definitions: an object that it lets through and one that it refuses, so that none is
//! always true and none always false.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::cluster::{Complaint, client, try_create, try_replace};
use crate::network_tests::tried;
use crate::sample::{attachment, ocid, profile, with, with_template};
use crate::{node_policies, node_tasks};

/// A new object, or one in the place of another.
enum Try {
    Create(Value),
    Replace(Value, Value),
}
use Try::{Create, Replace};

struct Case {
    field: &'static str,
    message: &'static str,
    accepted: Try,
    refused: Try,
}

/// The path of the fields that a VnicProfile's template shares with a VnicAttachment.
const TEMPLATE: &str = "spec.attachments[].";
const FIXED: &str = "cannot be changed: make another VnicAttachment";
const ADDRESS: &str = "must be an IPv4 or IPv6 address";
const IPV4: &str = "must be an IPv4 address";
const BLOCK: &str = "must be a CIDR block without host bits, such as 10.1.0.0/16 or fd00:1::/48";
const DEFAULT: &str = "must not be a default route, whole or in pieces: /8 is the widest for IPv4, /7 for IPv6";
const LINK_LOCAL: &str = "must not be link-local: that traffic is the host's own";
const FAMILY: &str = "via and destination must be of one family";
const NAMESPACES: &str = "allowedNamespaces are for purpose Attach only";
const MODE: &str = "mode is for purpose Attach only";
const SUBNET_ROUTE: &str = "subnetRoute is for purpose Host only";
const PRIVATE_IP: &str = "privateIp is for purpose Host, and for purpose Attach with mode Exclusive";
const SHARED: &str = "a VNIC that pods share has at most 32 IPv4 addresses";
const TAG_KEY: &str = "keys are 1 to 100 printable ASCII characters without spaces and periods";
const OUR_TAG: &str = "keys that begin with oke-node-manager/ are the controller's own";

/// A case of one field of a VnicAttachment: a value that passes, and one that does not.
fn field(field: &'static str, message: &'static str, accepted: Value, refused: Value) -> Case {
    let object = |spec| Create(with(attachment("rules"), spec));
    Case { field, message, accepted: object(accepted), refused: object(refused) }
}

/// The mode of a VNIC for pods cannot be changed.
fn mode() -> Case {
    let old = with(attachment("rules-mode"), json!({ "purpose": "Attach" }));
    let with = |more: Value| Replace(old.clone(), with(old.clone(), more));
    let (accepted, refused) = (with(json!({ "displayName": "another" })), with(json!({ "mode": "Exclusive" })));
    Case { field: "spec.mode", message: FIXED, accepted, refused }
}

/// A case of a field that cannot be changed: other fields can.
fn fixed(name: &'static str, path: &'static str, before: Value, after: Value) -> Case {
    let old = with(attachment(&format!("rules-{}", name.to_lowercase())), json!({ name: before }));
    let accepted = with(old.clone(), json!({ "displayName": "another" }));
    let refused = with(old.clone(), json!({ name: after }));
    Case { field: path, message: FIXED, accepted: Replace(old.clone(), accepted), refused: Replace(old, refused) }
}

/// A case of one field of a VnicProfile's template.
fn template(field: &'static str, message: &'static str, accepted: Value, refused: Value) -> Case {
    let object = |template| Create(with_template(profile("rules"), template));
    Case { field, message, accepted: object(accepted), refused: object(refused) }
}

/// A case of a VnicProfile's spec.
fn on_profile(field: &'static str, message: &'static str, accepted: Value, refused: Value) -> Case {
    let object = |spec| Create(with(profile("rules"), spec));
    Case { field, message, accepted: object(accepted), refused: object(refused) }
}

fn route(destination: &str) -> Value {
    json!({ "routes": [{ "destination": destination }] })
}

fn via(destination: &str, via: &str) -> Value {
    json!({ "routes": [{ "destination": destination, "via": via }] })
}

fn cases() -> Vec<Case> {
    let mut cases = fixed_fields();
    cases.extend(attachment_fields());
    // The other rules of a template are those of a VnicAttachment.
    cases.push(template("spec.attachments[].routes[].destination", BLOCK, route("10.1.0.0/16"), route("10.1.0.1/16")));
    cases.extend(profile_fields());
    cases.extend(sizes());
    cases
}

fn sizes() -> Vec<Case> {
    let large = "is too large: with the object's name it may take 900 bytes, of which an OCID is about 100: fewer security \
                 groups, routes, namespaces or tags";
    let groups = |count: u32| (0..count).map(|number| ocid("networksecuritygroup", number)).collect::<Value>();
    let spec = |name: usize| json!({ "nsgIds": groups(5), "displayName": "d".repeat(name) });
    let named = |name: &str| Create(with(attachment(name), spec(1)));
    vec![
        field("spec", large, spec(1), spec(200)),
        template("spec.attachments", large, spec(1), spec(200)),
        Case { field: "spec", message: large, accepted: named("short"), refused: named(&"l".repeat(200)) },
    ]
}

fn fixed_fields() -> Vec<Case> {
    vec![
        fixed("instanceId", "spec.instanceId", json!(ocid("instance", 1)), json!(ocid("instance", 2))),
        fixed("subnetId", "spec.subnetId", json!(ocid("subnet", 1)), json!(ocid("subnet", 2))),
        fixed("name", "spec.name", json!("storage"), json!("backup")),
        fixed("purpose", "spec.purpose", json!("Host"), json!("Pods")),
        fixed("nicIndex", "spec.nicIndex", Value::Null, json!(1)),
        fixed("assignPublicIp", "spec.assignPublicIp", json!(true), Value::Null),
        fixed("privateIp", "spec.privateIp", json!("10.0.0.5"), json!("10.0.0.6")),
        // Neither added nor removed.
        fixed("privateIp", "spec.privateIp", Value::Null, json!("10.0.0.5")),
        fixed("privateIp", "spec.privateIp", json!("10.0.0.5"), Value::Null),
        mode(),
        // Said or not, it is the same.
        Case {
            accepted: Replace(
                attachment("rules-said"),
                with(attachment("rules-said"), json!({ "nicIndex": 0, "assignPublicIp": false })),
            ),
            ..fixed("nicIndex", "spec.nicIndex", json!(1), json!(0))
        },
    ]
}

fn attachment_fields() -> Vec<Case> {
    let many_v4 = "has more IPv4 addresses than ipv4Count says";
    let many_v6 = "has more IPv6 addresses than ipv6Count says";
    let requested =
        |v4: u8, v6: u8, addresses: Value| json!({ "ipv4Count": v4, "ipv6Count": v6, "requestedAddresses": addresses });
    let both = json!(["10.0.0.5", "fd00::5"]);
    let two = json!(["10.0.0.5", "10.0.0.6"]);
    let two_v6 = json!(["fd00::5", "fd00::6"]);
    let attach = |mut more: Value| {
        more["purpose"] = json!("Attach");
        more
    };
    let own = |mut more: Value| {
        more["privateIp"] = json!("10.0.0.5");
        more
    };
    let exclusive = json!({ "mode": "Exclusive", "ipv4Count": 33 });
    let namespaces = |purpose: &str| json!({ "purpose": purpose, "allowedNamespaces": ["a"] });
    let (tags, tag) = ("spec.freeformTags", |key: &str| json!({ "freeformTags": { key: "x" } }));
    let element = "spec.requestedAddresses[]";
    let (destination, next) = ("spec.routes[].destination", "spec.routes[].via");
    vec![
        field("spec.requestedAddresses", many_v4, requested(1, 1, both.clone()), requested(1, 9, two.clone())),
        field("spec.requestedAddresses", many_v4, requested(2, 0, two), json!({ "requestedAddresses": ["10.0.0.5"] })),
        field("spec.requestedAddresses", many_v6, requested(1, 1, both), requested(9, 1, two_v6)),
        field(element, ADDRESS, requested(1, 0, json!(["10.0.0.5"])), requested(1, 0, json!(["10.0.0.256"]))),
        field(element, ADDRESS, requested(0, 1, json!(["fd00::5"])), requested(0, 1, json!(["fd00::5%eth0"]))),
        field(destination, BLOCK, route("10.1.0.0/16"), route("10.1.0.1/16")),
        field(destination, BLOCK, route("fd00:1::/48"), route("10.1.0.0")),
        field(destination, DEFAULT, route("10.0.0.0/8"), route("0.0.0.0/0")),
        field(destination, DEFAULT, route("fc00::/7"), route("::/0")),
        field(destination, DEFAULT, route("172.0.0.0/8"), route("128.0.0.0/1")),
        field(destination, LINK_LOCAL, route("169.253.0.0/16"), route("169.254.169.254/32")),
        field(destination, LINK_LOCAL, route("fec0::/10"), route("fe80::/64")),
        field(next, ADDRESS, via("10.1.0.0/16", "10.0.0.9"), via("10.1.0.0/16", "router")),
        field(next, FAMILY, via("fd00:1::/48", "fd00::9"), via("10.1.0.0/16", "fd00::9")),
        field(
            "spec.mode",
            MODE,
            attach(json!({ "mode": "Exclusive" })),
            json!({ "purpose": "Host", "mode": "Shared" }),
        ),
        field("spec.subnetRoute", SUBNET_ROUTE, json!({ "subnetRoute": true }), attach(json!({ "subnetRoute": true }))),
        field("spec.privateIp", PRIVATE_IP, own(json!({})), attach(own(json!({})))),
        field(
            "spec.privateIp",
            PRIVATE_IP,
            attach(own(json!({ "mode": "Exclusive" }))),
            own(json!({ "purpose": "Pods" })),
        ),
        field("spec.privateIp", IPV4, own(json!({})), json!({ "privateIp": "fd00::5" })),
        field("spec.ipv4Count", SHARED, attach(exclusive), attach(json!({ "ipv4Count": 33 }))),
        field("spec.allowedNamespaces", NAMESPACES, namespaces("Attach"), namespaces("Pods")),
        field(tags, TAG_KEY, tag("cost-center/1"), tag("a b")),
        field(tags, TAG_KEY, tag(&"k".repeat(100)), tag("a.b")),
        field(tags, TAG_KEY, json!({ "freeformTags": {} }), tag(&"k".repeat(101))),
        field(tags, OUR_TAG, tag("oke-node"), tag("OKE-node-manager/uid")),
    ]
}

fn profile_fields() -> Vec<Case> {
    let selector = |operator: &str, values: Value| {
        let expression = json!({ "key": "pool", "operator": operator, "values": values });
        json!({ "nodeSelector": { "matchExpressions": [expression] } })
    };
    let nodes = |selector: Value, all: Option<bool>| json!({ "nodeSelector": selector, "allNodes": all });
    let (expressions, selection) = ("spec.nodeSelector.matchExpressions[]", "spec.nodeSelector");
    let values = "values are for In and NotIn, which need at least one";
    let all = "a profile needs nodePools, or a nodeSelector with a label or an expression, or nodeSelector: {} with allNodes: true";
    let alone = "nodePools select the nodes alone: leave nodeSelector and allNodes out";
    let pools = |more: Value| {
        let mut spec = json!({ "nodePools": [ocid("nodepool", 1)], "nodeSelector": null });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let some = json!({ "matchLabels": { "pool": "a" } });
    let empty = json!({ "matchLabels": {}, "matchExpressions": [] });
    let exists = json!({ "matchExpressions": [{ "key": "pool", "operator": "Exists" }] });
    // Without strict validation, the API server drops a misspelled field.
    let (extra, misspelt) =
        (json!({ "matchLabels": { "pool": "a" }, "matchLabel": {} }), json!({ "matchLabel": { "pool": "a" } }));
    let named = |accepted: &str, refused: &str| {
        let message = "a VnicProfile's name is a DNS label: it becomes a label's value";
        Case { field: "", message, accepted: Create(profile(accepted)), refused: Create(profile(refused)) }
    };
    vec![
        on_profile(expressions, values, selector("In", json!(["a"])), selector("NotIn", json!([]))),
        on_profile(expressions, values, selector("Exists", json!([])), selector("Exists", json!(["a"]))),
        on_profile(selection, all, nodes(json!({}), Some(true)), nodes(json!({}), None)),
        on_profile(selection, all, nodes(some.clone(), Some(false)), nodes(empty, Some(false))),
        on_profile(selection, all, nodes(exists, None), nodes(some, Some(true))),
        on_profile(selection, all, nodes(extra, None), nodes(misspelt, None)),
        on_profile(selection, all, pools(json!({})), pools(json!({ "nodePools": [] }))),
        on_profile("spec.nodePools", alone, pools(json!({ "allNodes": false })), pools(json!({ "allNodes": true }))),
        on_profile("spec.nodePools", alone, pools(json!({ "paused": true })), pools(json!({ "nodeSelector": {} }))),
        named(&"p".repeat(63), &"p".repeat(64)),
        named("p-1", "p.1"),
    ]
}

#[tokio::test]
async fn every_rule_lets_one_object_through_and_refuses_another() {
    let client = client().await;
    for case in cases() {
        let accepted = try_it(&client, &case.accepted).await;
        assert!(accepted.is_ok(), "{} {}: {:?}", case.field, case.message, accepted.err());
        let complaints = try_it(&client, &case.refused).await.unwrap_err();
        let complains =
            complaints.iter().any(|(field, message)| field == case.field && message.ends_with(case.message));
        assert!(complains, "{} {}: {complaints:?}", case.field, case.message);
    }
}

#[test]
fn no_rule_is_without_a_case() {
    let own = cases().into_iter().map(|case| (case.field.to_owned(), case.message.to_owned()));
    let tried = own.chain(tried()).chain(node_policies::tried()).chain(node_tasks::tried());
    let tried: BTreeSet<Complaint> = tried.map(of_attachment).collect();
    let mut rules = BTreeMap::new();
    for crd in api::crd::all() {
        let of_kind: &mut BTreeSet<Complaint> = rules.entry(crd.spec.names.kind).or_default();
        for version in crd.spec.versions {
            let schema = serde_json::to_value(version.schema.unwrap().open_api_v3_schema).unwrap();
            collect("", &schema, of_kind);
            // `statuses` tries those of statuses.
            of_kind.retain(|(field, _)| !field.starts_with("status"));
        }
    }
    let of_template = rules["VnicProfile"].iter().filter(|(field, _)| field.starts_with(TEMPLATE));
    // A template has no requested addresses, can be changed, and is measured with its profile.
    let is_shared = |(field, message): &&Complaint| {
        message != FIXED && field != "spec" && !field.starts_with("spec.requestedAddresses")
    };
    let of_attachments = rules["VnicAttachment"].iter().filter(is_shared);
    assert_eq!(of_template.cloned().map(of_attachment).collect::<BTreeSet<_>>(), of_attachments.cloned().collect());
    assert_eq!(tried, rules.into_values().flatten().map(of_attachment).collect());
}

/// A rule of a template is the same type's rule in a VnicAttachment.
fn of_attachment(complaint: Complaint) -> Complaint {
    let (field, message) = complaint;
    (field.replace(TEMPLATE, "spec."), message)
}

async fn try_it(client: &kube::Client, object: &Try) -> Result<Value, Vec<Complaint>> {
    match object {
        Create(object) => try_create(client, object).await,
        Replace(old, new) => try_replace(client, old, new).await,
    }
}

/// The rules at and below a schema: the field that they complain of, and their words.
fn collect(path: &str, schema: &Value, rules: &mut BTreeSet<Complaint>) {
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        let field = rule["fieldPath"].as_str().unwrap_or_default();
        rules.insert((
            format!("{path}{field}").trim_start_matches('.').to_owned(),
            rule["message"].as_str().unwrap().to_owned(),
        ));
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let dot = if path.is_empty() { "" } else { "." };
        collect(&format!("{path}{dot}{name}"), property, rules);
    }
    if schema["items"].is_object() {
        collect(&format!("{path}[]"), &schema["items"], rules);
    }
}
