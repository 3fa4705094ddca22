//! Who may call, by each way of logging in, and who may not.

use std::path::PathBuf;
use std::process::Command;

use oci::WorkloadIdentity;
use sandbox::OciSettings;
use serde_json::json;

use crate::client::Client;
use crate::oracles::{Oracles, driver, python};
use crate::ours::Ours;
use crate::scene::{Scene, by_both_in};

/// A read, a write with a body, a list.
fn works(scene: &Scene, client: &mut dyn Client) {
    println!("== by {}", client.name());
    let attachment = scene.attached(client, "a");
    assert_eq!(scene.attachments(client).len(), 2);
    client.call("detachVnic", json!({ "id": attachment["id"] })).unwrap();
}

#[test]
fn an_instance_logs_in_by_its_certificate() {
    let scene = Scene::new();
    works(&scene, &mut Oracles::by_instance(&scene));
    let scene = Scene::new();
    let url = scene.api.url_in_nodes();
    let node = scene.vcn.node("node-a").unwrap();
    node.run(|| works(&scene, &mut Ours::by_instance(&url, oci::METADATA_URL))).unwrap();
}

#[test]
fn a_pod_logs_in_by_its_service_account() {
    let account = |scene: &Scene| -> (PathBuf, PathBuf) {
        let (token, authority) = (scene.folder.path().join("token"), scene.folder.path().join("ca.crt"));
        std::fs::write(&token, "a.service.account\n").unwrap();
        std::fs::write(&authority, scene.api.authority_pem()).unwrap();
        scene.api.accept_service_account("a.service.account");
        (token, authority)
    };
    let scene = Scene::new();
    let (_, authority) = account(&scene);
    works(&scene, &mut Oracles::by_workload(&scene, "a.service.account", &authority));
    let scene = Scene::new();
    let (token, authority) = account(&scene);
    let workload =
        WorkloadIdentity::new("127.0.0.1").with_port(scene.api.proxymux().port()).with_files(&token, &authority);
    works(&scene, &mut Ours::by_workload(&scene.api.url(), workload));
}

#[test]
fn a_user_of_another_cloud_is_nobody_here() {
    let strangers = Scene::new();
    let config = strangers.api.write_user(strangers.folder.path()).unwrap();
    let scene = Scene::new();
    // The same numbers in every sandbox: another user, so that the key id is known and the key is not.
    scene.api.write_user(scene.folder.path()).unwrap();
    let id = scene.vcn.node("node-a").unwrap().vnics()[0].id.to_string();
    for client in
        [&mut Oracles::by_config(&scene, &config) as &mut dyn Client, &mut Ours::by_config(&scene.api.url(), &config)]
    {
        client.call("getVnic", json!({ "id": id })).unwrap_err().expect(401, "NotAuthenticated");
    }
}

#[test]
fn a_clock_that_is_wrong_is_told() {
    let hasty = || Scene::with(OciSettings { clock_skew: std::time::Duration::ZERO, ..OciSettings::default() });
    by_both_in(hasty, |scene, client| {
        let id = scene.vcn.node("node-a").unwrap().vnics()[0].id.to_string();
        client.call("getVnic", json!({ "id": id })).unwrap_err().expect(401, "NotAuthenticated");
    });
}

/// As `oke-sandbox up` says it to whoever stands before it.
#[test]
fn the_sdk_works_on_a_node_of_the_sandbox_from_the_command_line() {
    let script = r#"
        login="{\"login\":\"config\",\"config\":\"$OCI_CONFIG_FILE\",\"endpoint\":\"$OKE_SANDBOX_OCI_URL\"}"
        echo '{"operation":"listShapes","arguments":{"compartmentId":"COMPARTMENT"}}' | "$0" "$1" "$login"
    "#;
    let vcn = Scene::new();
    let script = script.replace("COMPARTMENT", vcn.api.compartment());
    let output = Command::new(env!("CARGO_BIN_EXE_oke-sandbox"))
        .args(["up", "--", "sh", "-c", &script])
        .args([python(), driver()])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let answer = text.lines().last().unwrap_or_default();
    let answer: serde_json::Value = serde_json::from_str(answer).unwrap_or_else(|_| panic!("{text}"));
    assert_eq!(answer["value"][0]["shape"], "VM.Standard.E5.Flex", "{answer}");
    assert!(text.contains("OCI API, on the nodes: http://169.254.169.254:"), "{text}");
}
