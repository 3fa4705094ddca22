//! Each way of logging in, and refused logins.

use std::path::{Path, PathBuf};
use std::process::Command;

use oci::WorkloadIdentity;
use sandbox::OciSettings;
use serde_json::json;

use crate::client::Client;
use crate::our_client::OurClient;
use crate::scene::{Scene, by_each_in};
use crate::sdk_client::{Sdk, SdkClient, driver, python};

/// A read, a write with a body, a list.
fn works(scene: &Scene, client: &mut dyn Client) {
    println!("== by {}", client.name());
    let attachment = scene.attached(client, "a");
    assert_eq!(scene.attachments(client).len(), 2);
    client.call("detachVnic", json!({ "id": attachment["id"] })).unwrap();
}

fn each_by_config(scene: &Scene, config: &Path) -> [Box<dyn Client>; 3] {
    let [python, go] = Sdk::ALL.map(|sdk| Box::new(SdkClient::by_config(sdk, scene, config)));
    [python, go, Box::new(OurClient::by_config(&scene.api.url(), config))]
}

#[test]
fn an_instance_logs_in_by_its_certificate() {
    for sdk in Sdk::ALL {
        let scene = Scene::new();
        works(&scene, &mut SdkClient::by_instance(sdk, &scene));
    }
    let scene = Scene::new();
    let url = scene.api.url_in_nodes();
    let node = scene.vcn.node("node-a").unwrap();
    node.run(|| works(&scene, &mut OurClient::by_instance(&url, oci::METADATA_URL))).unwrap();
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
    for sdk in Sdk::ALL {
        // The port cannot be chosen in the SDK for Go.
        let proxymux_port = if sdk == Sdk::Go { 12250 } else { 0 };
        let scene = Scene::with(OciSettings { page: 2, proxymux_port, ..OciSettings::default() });
        let (_, authority) = account(&scene);
        works(&scene, &mut SdkClient::by_workload(sdk, &scene, "a.service.account", &authority));
    }
    let scene = Scene::new();
    let (token, authority) = account(&scene);
    let workload =
        WorkloadIdentity::new("127.0.0.1").with_port(scene.api.proxymux().port()).with_files(&token, &authority);
    works(&scene, &mut OurClient::by_workload(&scene.api.url(), workload));
}

#[test]
fn a_user_of_another_cloud_is_refused() {
    let strangers = Scene::new();
    let config = strangers.api.write_user(strangers.folder.path()).unwrap();
    let scene = Scene::new();
    // The same numbers in every sandbox: another user, so that the key id is known and the key is not.
    scene.api.write_user(scene.folder.path()).unwrap();
    let id = scene.vcn.node("node-a").unwrap().vnics()[0].id.to_string();
    for mut client in each_by_config(&scene, &config) {
        client.call("getVnic", json!({ "id": id })).unwrap_err().expect(401, "NotAuthenticated");
    }
}

/// Encrypts the key in a file in place, as PKCS#8 and by the library that Oracle's tools use.
const ENCRYPT: &str = "
import sys
from cryptography.hazmat.primitives import serialization as form
name, pass_phrase = sys.argv[1], sys.argv[2].encode()
key = form.load_pem_private_key(open(name, 'rb').read(), None)
encryption = form.BestAvailableEncryption(pass_phrase)
open(name, 'wb').write(key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, encryption) + b'OCI_API_KEY')
";

#[test]
fn a_user_logs_in_by_an_encrypted_key_and_its_pass_phrase() {
    let scene = Scene::new();
    let config = scene.api.write_user(scene.folder.path()).unwrap();
    let key = scene.folder.path().join("oci_api_key.pem");
    let output = Command::new(python()).args(["-c", ENCRYPT]).arg(&key).arg("correct horse").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(std::fs::read_to_string(key).unwrap().contains("BEGIN ENCRYPTED PRIVATE KEY"));
    let plain = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{plain}pass_phrase=correct horse\n")).unwrap();
    for mut client in each_by_config(&scene, &config) {
        println!("== by {}", client.name());
        assert_eq!(scene.attachments(client.as_mut()).len(), 1);
    }
}

#[test]
fn a_wrong_clock_is_refused() {
    let hasty = || Scene::with(OciSettings { clock_skew: std::time::Duration::ZERO, ..OciSettings::default() });
    by_each_in(hasty, |scene, client| {
        let id = scene.vcn.node("node-a").unwrap().vnics()[0].id.to_string();
        client.call("getVnic", json!({ "id": id })).unwrap_err().expect(401, "NotAuthenticated");
    });
}

/// With what `oke-sandbox up` prints.
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
