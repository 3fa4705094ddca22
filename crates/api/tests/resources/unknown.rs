//! Unknown fields: dropped, or refused if the client requests that, as kubectl does.

use serde_json::{Value, json};

use crate::cluster::{client, try_create, typed};
use crate::sample::{attachment, profile, with, with_template};
use kube::api::PostParams;
use kube::core::Request;

#[tokio::test]
async fn unknown_fields_are_not_kept() {
    let client = client().await;
    let made = try_create(&client, &with(attachment("unknown"), json!({ "nsgIDs": ["a"] }))).await.unwrap();
    assert_eq!(made["spec"], attachment("unknown")["spec"]);
    let made = try_create(&client, &with_template(profile("unknown"), json!({ "instanceId": "a" }))).await.unwrap();
    assert_eq!(made["spec"], profile("unknown")["spec"]);
}

#[tokio::test]
async fn unknown_fields_are_refused_as_kubectl_asks() {
    let client = client().await;
    for (object, complaint) in [
        (with(attachment("unknown"), json!({ "nsgIDs": ["a"] })), "unknown field \"spec.nsgIDs\""),
        (
            with_template(profile("unknown"), json!({ "instanceId": "a" })),
            "unknown field \"spec.attachments[0].instanceId\"",
        ),
    ] {
        let plural = if object["kind"] == "VnicProfile" { "vnicprofiles" } else { "vnicattachments" };
        let path = format!("/apis/{}/{}/{plural}", api::GROUP, api::VERSION);
        let body = serde_json::to_vec(&typed(&object)).unwrap();
        let mut request = Request::new(path).create(&PostParams::default(), body).unwrap();
        *request.uri_mut() = format!("{}&fieldValidation=Strict&dryRun=All", request.uri()).parse().unwrap();
        let Err(kube::Error::Api(status)) = client.request::<Value>(request).await else { panic!("it was taken") };
        assert!(status.code == 400 && status.message.contains(complaint), "{status:?}");
    }
}
