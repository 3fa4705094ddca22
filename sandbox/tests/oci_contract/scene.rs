//! A small VCN with its API, and the clients that play a case.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sandbox::{NodeSpec, OciApi, OciSettings, SubnetSpec, Vcn};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::{Client, Reply, text};
use crate::our_client::OurClient;
use crate::sdk_client::{Sdk, SdkClient};

/// Long enough for a busy machine.
const CONDITION_TIMEOUT: Duration = Duration::from_secs(90);

/// A VCN of one node and an API whose pages hold two entries.
pub(crate) struct Scene {
    pub(crate) api: OciApi,
    pub(crate) vcn: Arc<Vcn>,
    pub(crate) folder: TempDir,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self::with(OciSettings { page: 2, ..OciSettings::default() })
    }

    pub(crate) fn with(settings: OciSettings) -> Self {
        let vcn = Vcn::builder()
            .subnet(SubnetSpec::new("nodes", &["10.0.0.0/24", "2603:c020:0:1::/64"]))
            .subnet(SubnetSpec::new("pods", &["10.0.32.0/24", "2603:c020:0:2::/64"]))
            .subnet(SubnetSpec::new("two", &["10.0.64.0/24", "2603:c020:0:4::/64", "2603:c020:0:5::/64"]))
            .node(NodeSpec::virtual_machine("node-a", "nodes").shape("VM.Standard.E5.Flex", 4))
            .node(NodeSpec::bare_metal("metal", "nodes").on_paper())
            .start()
            .expect("a sandbox");
        let vcn = Arc::new(vcn);
        let api = OciApi::start(Arc::clone(&vcn), settings).expect("its OCI API");
        Self { api, vcn, folder: TempDir::new().expect("a folder") }
    }

    pub(crate) fn instance(&self) -> String {
        self.vcn.node("node-a").unwrap().id().to_string()
    }

    /// Attaches one where a subnet has two IPv6 blocks.
    pub(crate) fn attached_to_two(&self, client: &mut dyn Client) -> Value {
        let mut request = self.request("two");
        request["createVnicDetails"]["subnetId"] = json!(self.vcn.subnet("two").unwrap().id);
        let reply = client.call("attachVnic", json!({ "body": request })).expect("accepted");
        wait_for_state(client, &text(&reply.value, "id"), "ATTACHED").value
    }

    pub(crate) fn subnet(&self) -> String {
        self.vcn.subnet("pods").unwrap().id.to_string()
    }

    /// A request to attach a VNIC of this name.
    pub(crate) fn request(&self, name: &str) -> Value {
        json!({
            "instanceId": self.instance(),
            "createVnicDetails": {
                "subnetId": self.subnet(),
                "displayName": name,
                "assignPublicIp": false,
                "assignIpv6Ip": true,
                "skipSourceDestCheck": true,
                "freeformTags": { "oke-vnic": name },
            },
        })
    }

    /// Attaches a VNIC and waits until it is there; returns the attachment.
    pub(crate) fn attached(&self, client: &mut dyn Client, name: &str) -> Value {
        let reply = client.call("attachVnic", json!({ "body": self.request(name) })).expect("accepted");
        wait_for_state(client, &text(&reply.value, "id"), "ATTACHED").value
    }

    pub(crate) fn attachments(&self, client: &mut dyn Client) -> Vec<Value> {
        let arguments = json!({ "compartmentId": self.api.compartment(), "instanceId": self.instance() });
        client.call("listVnicAttachments", arguments).expect("a list").value.as_array().expect("a list").clone()
    }

    /// The names of the node's links.
    pub(crate) fn links(&self) -> Vec<String> {
        let node = self.vcn.node("node-a").unwrap();
        let mut socket = netlink::Socket::open_in(node.netns()).unwrap();
        socket.links().unwrap().into_iter().map(|link| link.name.to_string()).collect()
    }
}

/// Plays a case with each of Oracle's SDKs and with our client, each time in a scene of its own.
pub(crate) fn by_each(case: impl Fn(&Scene, &mut dyn Client)) {
    by_each_in(Scene::new, case);
}

pub(crate) fn by_each_in(scene: impl Fn() -> Scene, case: impl Fn(&Scene, &mut dyn Client)) {
    for sdk in Sdk::ALL.map(Some).into_iter().chain([None]) {
        let scene = scene();
        let config = scene.api.write_user(scene.folder.path()).expect("a user");
        let mut client: Box<dyn Client> = match sdk {
            Some(sdk) => Box::new(SdkClient::by_config(sdk, &scene, &config)),
            None => Box::new(OurClient::by_config(&scene.api.url(), Path::new(&config))),
        };
        println!("== by {}", client.name());
        case(&scene, client.as_mut());
    }
}

/// Polls until an attachment is in a state.
#[track_caller]
pub(crate) fn wait_for_state(client: &mut dyn Client, attachment: &str, state: &str) -> Reply {
    let deadline = Instant::now() + CONDITION_TIMEOUT;
    loop {
        let reply = client.call("getVnicAttachment", json!({ "id": attachment })).expect("the attachment");
        if reply.value["lifecycleState"] == state {
            return reply;
        }
        assert!(Instant::now() < deadline, "not {state} within {CONDITION_TIMEOUT:?}: {}", reply.value);
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + CONDITION_TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {CONDITION_TIMEOUT:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
