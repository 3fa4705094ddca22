//! Each way of logging in, and refused logins.

use std::path::{Path, PathBuf};

use oci::WorkloadIdentity;
use sandbox::OciSettings;
use serde_json::json;

use crate::client::Client;
use crate::our_client::OurClient;
use crate::scene::Scene;
use crate::sdk_client::{Sdk, SdkClient};

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
