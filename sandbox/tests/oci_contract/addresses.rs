//! Private IPs and IPv6s: single, in bulk, and what the fabric makes of them.

use std::net::IpAddr;

use sandbox::OciSettings;
use serde_json::{Value, json};

use crate::client::{Client, text};
use crate::scene::{Scene, by_each, by_each_in, wait_for};

fn addresses(client: &mut dyn Client, family: &str, vnic: &str) -> Vec<Value> {
    let listed = client.call("listAddresses", json!({ "family": family, "vnicId": vnic })).expect("a list");
    listed.value.as_array().expect("a list").clone()
}

fn secondary(scene: &Scene, vnic: &str) -> usize {
    let node = scene.vcn.node("node-a").unwrap();
    let found = node.vnics().into_iter().find(|own| own.id.as_str() == vnic).expect("the VNIC");
    found.secondary.iter().map(|(_, all)| all.len()).sum()
}

#[test]
fn address_exists_only_as_long_as_its_object() {
    by_each(|scene, client| {
        let vnic = text(&scene.attached(client, "a"), "vnicId");
        for (family, chosen) in [("IPv4", "10.0.32.99"), ("IPv6", "2603:c020:0:2::99")] {
            let own = addresses(client, family, &vnic);
            assert_eq!(own.len(), 1, "its own: {own:?}");
            let any = json!({ "family": family, "body": { "vnicId": vnic, "displayName": "pod" } });
            let any = client.call("createAddress", any).unwrap().value;
            let given = json!({ "family": family, "body": { "vnicId": vnic, "ipAddress": chosen } });
            let given_object = client.call("createAddress", given.clone()).unwrap().value;
            assert_eq!(
                (text(&given_object, "ipAddress").as_str(), text(&given_object, "vnicId")),
                (chosen, vnic.clone())
            );
            client.call("createAddress", given).unwrap_err().expect(409, "Conflict");
            assert_eq!(addresses(client, family, &vnic).len(), 3, "over two pages");
            assert_eq!(secondary(scene, &vnic), 2);
            for object in [any, given_object] {
                client.call("deleteAddress", json!({ "family": family, "id": object["id"] })).unwrap();
            }
            assert_eq!(addresses(client, family, &vnic), own);
            let gone = json!({ "family": family, "id": own[0]["id"] });
            client.call("deleteAddress", gone).unwrap_err().expect(400, "InvalidParameter");
        }
    });
}

#[test]
fn a_retry_token_makes_one_address() {
    by_each(|scene, client| {
        let vnic = text(&scene.attached(client, "a"), "vnicId");
        let request = || json!({ "family": "IPv4", "retryToken": "one", "body": { "vnicId": vnic } });
        let first = client.call("createAddress", request()).unwrap().value;
        assert_eq!(client.call("createAddress", request()).unwrap().value["id"], first["id"]);
        assert_eq!(addresses(client, "IPv4", &vnic).len(), 2);
        client.call("deleteAddress", json!({ "family": "IPv4", "id": first["id"] })).unwrap();
        client.call("createAddress", request()).unwrap_err().expect(409, "InvalidatedRetryToken");
    });
}

#[test]
fn a_block_is_one_object() {
    by_each(|scene, client| {
        let vnic = text(&scene.attached(client, "a"), "vnicId");
        for (family, prefix) in [("IPv4", 28), ("IPv6", 120)] {
            let request = json!({ "family": family, "body": { "vnicId": vnic, "cidrPrefixLength": prefix } });
            let block = client.call("createAddress", request).unwrap().value;
            assert_eq!(block["cidrPrefixLength"], prefix);
            let first: IpAddr = text(&block, "ipAddress").parse().unwrap();
            let node = scene.vcn.node("node-a").unwrap();
            let own = node.vnics().into_iter().find(|own| own.id.as_str() == vnic).unwrap();
            assert!(own.blocks.iter().any(|(_, own)| own.network() == first), "{own:?}");
            client.call("deleteAddress", json!({ "family": family, "id": block["id"] })).unwrap();
        }
        let absurd = json!({ "family": "IPv4", "body": { "vnicId": vnic, "cidrPrefixLength": 12 } });
        client.call("createAddress", absurd).unwrap_err().expect(400, "InvalidParameter");
    });
}

#[test]
fn bulk_requests_create_addresses_later() {
    by_each(|scene, client| {
        let vnic = text(&scene.attached(client, "a"), "vnicId");
        for family in ["IPv4", "IPv6"] {
            let items: Vec<_> = (0..5).map(|number| json!({ "displayName": format!("pod-{number}") })).collect();
            let request =
                json!({ "family": family, "vnicId": vnic, "items": items, "retryToken": format!("bulk-{family}") });
            let work = client.call("bulkCreateAddresses", request.clone()).unwrap().value;
            assert!(work.as_str().is_some_and(|work| work.starts_with("ocid1.")), "{work}");
            wait_for("they are there", || addresses(client, family, &vnic).len() == 6);
            assert_eq!(
                client.call("bulkCreateAddresses", request).unwrap().value,
                work,
                "the same token, the same work"
            );
            let made: Vec<_> = addresses(client, family, &vnic)
                .into_iter()
                .filter(|address| address["displayName"].as_str().is_some_and(|name| name.starts_with("pod-")))
                .map(|address| address["id"].clone())
                .collect();
            assert_eq!(made.len(), 5);
            for id in made {
                client.call("deleteAddress", json!({ "family": family, "id": id })).unwrap();
            }
        }
        assert_eq!(secondary(scene, &vnic), 0);
    });
}

#[test]
fn a_vnic_has_a_limit_of_addresses() {
    let few = || Scene::with(OciSettings { addresses_per_vnic: 2, ..OciSettings::default() });
    by_each_in(few, |scene, client| {
        let vnic = text(&scene.attached(client, "a"), "vnicId");
        let request = || json!({ "family": "IPv4", "body": { "vnicId": vnic } });
        client.call("createAddress", request()).unwrap();
        client.call("createAddress", request()).unwrap();
        client.call("createAddress", request()).unwrap_err().expect(400, "LimitExceeded");
        client.call("createAddress", json!({ "family": "IPv6", "body": { "vnicId": vnic } })).unwrap();
    });
}

#[test]
fn address_in_subnet_of_two_blocks_must_name_its_block() {
    by_each(|scene, client| {
        let vnic = text(&scene.attached_to_two(client), "vnicId");
        let second = "2603:c020:0:5::/64";
        let one = |fields: Value| {
            let mut body = json!({ "vnicId": vnic });
            body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            json!({ "family": "IPv6", "body": body })
        };
        for refused in [json!({}), json!({ "ipv6SubnetCidr": "2603:c020:0:6::/64" })] {
            client.call("createAddress", one(refused.clone())).unwrap_err().expect(400, "InvalidParameter");
            let bulk = json!({ "family": "IPv6", "vnicId": vnic, "items": [refused] });
            client.call("bulkCreateAddresses", bulk).unwrap_err().expect(400, "InvalidParameter");
        }
        let made = client.call("createAddress", one(json!({ "ipv6SubnetCidr": second }))).unwrap().value;
        assert!(text(&made, "ipAddress").starts_with("2603:c020:0:5:"), "{made}");
        let items = vec![json!({ "ipv6SubnetCidr": second }); 2];
        client.call("bulkCreateAddresses", json!({ "family": "IPv6", "vnicId": vnic, "items": items })).unwrap();
        wait_for("they are there", || addresses(client, "IPv6", &vnic).len() == 4);
        let of_second = |own: &&Value| text(own, "ipAddress").starts_with("2603:c020:0:5:");
        assert_eq!(
            addresses(client, "IPv6", &vnic).iter().filter(of_second).count(),
            4,
            "its own is of the last block"
        );
    });
}
