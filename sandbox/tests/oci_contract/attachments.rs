//! VNICs come, are seen, and go.

use std::time::Duration;

use sandbox::{OciSettings, Operation};
use serde_json::{Value, json};

use crate::client::text;
use crate::scene::{Scene, by_each, by_each_in, wait_for, wait_for_state};

#[test]
fn an_attached_vnic_is_a_link_until_it_is_detached() {
    by_each(|scene, client| {
        let before = scene.links();
        let reply = client.call("attachVnic", json!({ "body": scene.request("storage") })).unwrap();
        assert_eq!(reply.value["lifecycleState"], "ATTACHING");
        assert!(reply.value["vnicId"].is_null() && reply.value["vlanTag"].is_null(), "known later: {}", reply.value);
        let id = text(&reply.value, "id");

        let attached = wait_for_state(client, &id, "ATTACHED");
        let vnic_id = text(&attached.value, "vnicId");
        assert!(attached.value["vlanTag"].is_u64());
        assert_eq!(scene.links().len(), before.len() + 1, "hot-plugged");
        let vnic = client.call("getVnic", json!({ "id": vnic_id })).unwrap().value;
        assert_eq!((&vnic["lifecycleState"], &vnic["displayName"]), (&"AVAILABLE".into(), &"storage".into()));
        assert_eq!(
            (&vnic["skipSourceDestCheck"], &vnic["freeformTags"]["oke-vnic"]),
            (&true.into(), &"storage".into())
        );
        assert_eq!(vnic["subnetId"], scene.subnet());
        let node = scene.vcn.node("node-a").unwrap();
        let plugged = node.vnics().into_iter().find(|own| own.id.as_str() == vnic_id).expect("IMDS lists it");
        assert_eq!(text(&vnic, "macAddress").to_lowercase(), plugged.mac.to_string());
        assert_eq!(text(&vnic, "privateIp"), plugged.address.ipv4.unwrap().to_string());
        assert_eq!(vnic["ipv6Addresses"], json!([plugged.address.ipv6.unwrap()]));

        client.call("detachVnic", json!({ "id": id })).unwrap();
        wait_for_state(client, &id, "DETACHED");
        assert_eq!(scene.links(), before);
        client.call("getVnic", json!({ "id": vnic_id })).unwrap_err().expect(404, "NotAuthorizedOrNotFound");
        client.call("detachVnic", json!({ "id": id })).unwrap_err().expect(404, "NotAuthorizedOrNotFound");
    });
}

#[test]
fn list_contains_all_pages_primary_vnic_and_detached_records() {
    by_each(|scene, client| {
        assert_eq!(scene.attachments(client).len(), 1, "the primary one");
        let gone = scene.attached(client, "gone");
        client.call("detachVnic", json!({ "id": gone["id"] })).unwrap();
        wait_for_state(client, &text(&gone, "id"), "DETACHED");
        for name in ["a", "b", "c"] {
            scene.attached(client, name);
        }
        // Pages have two entries.
        let states: Vec<_> =
            scene.attachments(client).iter().map(|attachment| text(attachment, "lifecycleState")).collect();
        assert_eq!(states, ["ATTACHED", "DETACHED", "ATTACHED", "ATTACHED", "ATTACHED"]);
    });
}

#[test]
fn an_instance_takes_one_attachment_at_a_time() {
    let slow = || Scene::with(OciSettings { attaching: Duration::from_secs(600), ..OciSettings::default() });
    by_each_in(slow, |scene, client| {
        let first = client.call("attachVnic", json!({ "body": scene.request("a") })).unwrap().value;
        client.call("attachVnic", json!({ "body": scene.request("b") })).unwrap_err().expect(409, "Conflict");
        client.call("detachVnic", json!({ "id": first["id"] })).unwrap_err().expect(409, "Conflict");
    });
    by_each(|scene, client| {
        scene.attached(client, "a");
        client.call("attachVnic", json!({ "body": scene.request("b") })).unwrap();
    });
}

#[test]
fn attachments_are_limited_and_refused() {
    by_each(|scene, client| {
        let primary = scene.attachments(client)[0]["id"].clone();
        client.call("detachVnic", json!({ "id": primary })).unwrap_err().expect(400, "InvalidParameter");
        let mut public = scene.request("a");
        public["createVnicDetails"]["assignPublicIp"] = json!(true);
        client.call("attachVnic", json!({ "body": public })).unwrap_err().expect(400, "InvalidParameter");
        for name in ["a", "b", "c"] {
            scene.attached(client, name);
        }
        let attach = || json!({ "body": scene.request("d") });
        client.call("attachVnic", attach()).unwrap_err().expect(400, "LimitExceeded");
        scene.api.set_instance_state("node-a", "TERMINATED").unwrap();
        client.call("attachVnic", attach()).unwrap_err().expect(409, "IncorrectState");
        let instance = client.call("getInstance", json!({ "id": scene.instance() })).unwrap().value;
        assert_eq!(instance["lifecycleState"], "TERMINATED");
        wait_for("its VNICs are gone", || scene.links() == ["lo", "ens3"]);
    });
}

#[test]
fn a_retry_token_makes_one_vnic_until_that_is_gone() {
    by_each(|scene, client| {
        let request = || json!({ "body": scene.request("once"), "retryToken": "once" });
        let first = client.call("attachVnic", request()).unwrap().value;
        let again = client.call("attachVnic", request()).unwrap().value;
        assert_eq!(first["id"], again["id"]);
        let other = json!({ "body": scene.request("other"), "retryToken": "once" });
        client.call("attachVnic", other).unwrap_err().expect(400, "InvalidParameter");

        let id = text(&first, "id");
        wait_for_state(client, &id, "ATTACHED");
        assert_eq!(scene.attachments(client).len(), 2);
        client.call("detachVnic", json!({ "id": id })).unwrap();
        wait_for_state(client, &id, "DETACHED");
        client.call("attachVnic", request()).unwrap_err().expect(409, "InvalidatedRetryToken");
    });
}

#[test]
fn a_change_to_an_old_version_is_refused() {
    by_each(|scene, client| {
        let attachment = scene.attached(client, "a");
        let vnic = text(&attachment, "vnicId");
        let read = client.call("getVnic", json!({ "id": vnic })).unwrap();
        let change = |etag: &Option<String>| json!({ "id": vnic, "ifMatch": etag, "body": { "displayName": "b", "freeformTags": { "x": "y" } } });
        let changed = client.call("updateVnic", change(&read.etag)).unwrap();
        assert_eq!(
            (&changed.value["displayName"], &changed.value["freeformTags"]),
            (&"b".into(), &json!({ "x": "y" }))
        );
        assert_ne!(changed.etag, read.etag);
        client.call("updateVnic", change(&read.etag)).unwrap_err().expect(412, "NoEtagMatch");
        client
            .call("detachVnic", json!({ "id": attachment["id"], "ifMatch": "v0" }))
            .unwrap_err()
            .expect(412, "NoEtagMatch");
    });
}

#[test]
fn absent_and_forbidden_resources_look_the_same() {
    by_each(|scene, client| {
        let unknown = json!({ "id": "ocid1.vnic.oc1.iad.unknown" });
        client.call("getVnic", unknown).unwrap_err().expect(404, "NotAuthorizedOrNotFound");
        let vnic = text(&scene.attached(client, "a"), "vnicId");
        scene.api.forbid(&[Operation::GetVnic]);
        client.call("getVnic", json!({ "id": vnic })).unwrap_err().expect(404, "NotAuthorizedOrNotFound");
        scene.api.forbid(&[]);
        client.call("getVnic", json!({ "id": vnic })).unwrap();

        let mut request = scene.request("b");
        request["createVnicDetails"]["subnetId"] = "ocid1.subnet.oc1.iad.unknown".into();
        let refused = client.call("attachVnic", json!({ "body": request })).unwrap_err();
        refused.expect(400, "RelatedResourceNotAuthorizedOrNotFound");
        let elsewhere = json!({ "compartmentId": "ocid1.compartment.oc1..other", "instanceId": scene.instance() });
        client.call("listVnicAttachments", elsewhere).unwrap_err().expect(404, "NotAuthorizedOrNotFound");
    });
}

#[test]
fn a_given_address_is_given_once() {
    by_each(|scene, client| {
        let mut request = scene.request("a");
        request["createVnicDetails"]["privateIp"] = "10.0.32.77".into();
        let id = text(&client.call("attachVnic", json!({ "body": request })).unwrap().value, "id");
        let vnic = text(&wait_for_state(client, &id, "ATTACHED").value, "vnicId");
        assert_eq!(client.call("getVnic", json!({ "id": vnic })).unwrap().value["privateIp"], "10.0.32.77");
        client.call("attachVnic", json!({ "body": request })).unwrap_err().expect(409, "Conflict");
        request["createVnicDetails"]["privateIp"] = "10.9.9.9".into();
        client.call("attachVnic", json!({ "body": request })).unwrap_err().expect(400, "InvalidParameter");
    });
}

#[test]
fn attach_uses_ipv6_address_from_the_named_block() {
    by_each(|scene, client| {
        let request = |pair: Value| {
            let mut request = scene.request("two");
            request["createVnicDetails"]["subnetId"] = json!(scene.vcn.subnet("two").unwrap().id);
            request["createVnicDetails"]["ipv6AddressIpv6SubnetCidrPairDetails"] = json!([pair]);
            json!({ "body": request })
        };
        let second = "2603:c020:0:5::/64";
        for refused in [
            json!({ "ipv6SubnetCidr": "2603:c020:0:6::/64" }),
            json!({ "ipv6SubnetCidr": second, "ipv6Address": "2603:c020:0:4::9" }),
        ] {
            client.call("attachVnic", request(refused)).unwrap_err().expect(400, "InvalidParameter");
        }
        let reply = client.call("attachVnic", request(json!({ "ipv6SubnetCidr": second }))).unwrap().value;
        let attached = wait_for_state(client, &text(&reply, "id"), "ATTACHED").value;
        let vnic = client.call("getVnic", json!({ "id": attached["vnicId"] })).unwrap().value;
        let address = vnic["ipv6Addresses"][0].as_str().unwrap_or_default().to_owned();
        assert!(address.starts_with("2603:c020:0:5:"), "{vnic}");
    });
}

#[test]
fn a_change_past_the_api_is_seen() {
    by_each(|scene, client| {
        let plugged = scene.vcn.attach_vnic("node-a", &sandbox::VnicSpec::for_pods("pods", 3)).unwrap();
        let seen: Vec<Value> = scene.attachments(client);
        let attachment =
            seen.iter().find(|attachment| attachment["vnicId"] == plugged.id.as_str()).expect("it is listed");
        assert_eq!(attachment["lifecycleState"], "ATTACHED");
        scene.vcn.detach_vnic("node-a", &plugged.id).unwrap();
        wait_for_state(client, &text(attachment, "id"), "DETACHED");
    });
}

#[test]
fn a_vnic_is_available_some_time_after_its_attachment_is() {
    let slow = || Scene::with(OciSettings { provisioning: Duration::from_secs(600), ..OciSettings::default() });
    by_each_in(slow, |scene, client| {
        let attachment = scene.attached(client, "a");
        let found = client.call("getVnic", json!({ "id": attachment["vnicId"] })).unwrap().value;
        assert_eq!(found["lifecycleState"], "PROVISIONING");
    });
}
