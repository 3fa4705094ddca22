//! Our client, as a case sees one.

use std::path::Path;
use std::time::Duration;

use backoff::Policy;
use oci::{
    ApiKey, CreateAddresses, Endpoints, Error, Etag, InstancePrincipal, Login, Oci, Options, RetryToken, Trust,
    VersionedObject, WorkloadIdentity,
};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use vcn::{Family, Ocid};

use crate::client::{Client, Refusal, Reply};

pub(crate) struct OurClient {
    oci: Oci,
    runtime: Runtime,
}

impl OurClient {
    pub(crate) fn by_config(url: &str, config: &Path) -> Self {
        Self::new(url, |_| Login::api_key(ApiKey::from_config_file(config, "DEFAULT").expect("a config file")))
    }

    /// To be called inside a node.
    pub(crate) fn by_instance(url: &str, metadata: &str) -> Self {
        let instance = InstancePrincipal::new(&metadata.parse().expect("a URL"), &Trust::Public).expect("an instance");
        let instance = instance.with_federation(url.parse().expect("an endpoint"));
        Self::new(url, |_| Login::instance_principal(instance))
    }

    pub(crate) fn by_workload(url: &str, workload: WorkloadIdentity) -> Self {
        Self::new(url, |_| Login::workload_identity(workload))
    }

    fn new(url: &str, login: impl FnOnce(&Runtime) -> Login) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let endpoints = Endpoints { core: url.parse().expect("an endpoint"), auth: url.parse().expect("an endpoint") };
        // Once: the cases look at each answer.
        let policy = Policy { attempts: 1, deadline: Duration::from_secs(30), ..oci::POLICY };
        let options = Options { policy, ..Options::default() };
        let login = login(&runtime);
        Self { oci: Oci::new(&endpoints, login, options).expect("a client"), runtime }
    }
}

impl Client for OurClient {
    fn name(&self) -> &'static str {
        "our client"
    }

    fn call(&mut self, operation: &str, arguments: Value) -> Result<Reply, Refusal> {
        let Self { oci, runtime } = self;
        runtime.block_on(call(oci, operation, &arguments)).map_err(|error| refusal(&error))
    }
}

async fn call(oci: &Oci, operation: &str, arguments: &Value) -> Result<Reply, Error> {
    let id = |name: &str| arguments[name].as_str().expect("an OCID").parse::<Ocid>().expect("an OCID");
    let family = if arguments["family"] == "IPv6" { Family::Ipv6 } else { Family::Ipv4 };
    let token = match arguments["retryToken"].as_str() {
        Some(text) => RetryToken::derive(&[text]),
        // Cases that do not care for tokens mean each call.
        None => RetryToken::derive(&[&format!("{:?}", std::time::SystemTime::now())]),
    };
    let if_match = arguments["ifMatch"].as_str().map(etag);
    Ok(match operation {
        "listVnicAttachments" => plain(&oci.vnic_attachments(&id("compartmentId"), Some(&id("instanceId"))).await?),
        "getVnicAttachment" => tagged(&oci.vnic_attachment(&id("id")).await?),
        "attachVnic" => tagged(&oci.attach_vnic(&body(arguments), &token).await?),
        "detachVnic" => plain(&oci.detach_vnic(&id("id"), if_match.as_ref()).await?),
        "getVnic" => tagged(&oci.vnic(&id("id")).await?),
        "updateVnic" => tagged(&oci.update_vnic(&id("id"), &body(arguments), if_match.as_ref()).await?),
        "listAddresses" => plain(&oci.addresses(&id("vnicId"), family).await?),
        "createAddress" => tagged(&oci.create_address(family, &body(arguments), &token).await?),
        "deleteAddress" => plain(&oci.delete_address(family, &id("id")).await?),
        "bulkCreateAddresses" => {
            let items = serde_json::from_value(arguments["items"].clone()).expect("items");
            let request = CreateAddresses { vnic_id: id("vnicId"), items };
            plain(&oci.create_addresses(family, &request, &token).await?.0)
        }
        "getSubnet" => plain(&oci.subnet(&id("id")).await?),
        "getInstance" => plain(&oci.instance(&id("id")).await?),
        "instanceAction" => plain(&oci.soft_reset(&id("id"), &token).await?),
        "listAgentPlugins" => plain(&oci.agent_plugins(&id("compartmentId"), &id("instanceId")).await?),
        "listComputeHosts" => plain(&oci.compute_hosts(&id("compartmentId")).await?),
        "listMaintenanceEvents" => plain(&oci.maintenance_events(&id("compartmentId")).await?),
        "listShapes" => plain(&oci.shapes(&id("compartmentId")).await?),
        other => panic!("no operation {other}"),
    })
}

fn body<T: serde::de::DeserializeOwned>(arguments: &Value) -> T {
    serde_json::from_value(arguments["body"].clone()).expect("a body")
}

fn etag(text: &str) -> Etag {
    Etag::from(text)
}

fn plain(value: &impl Serialize) -> Reply {
    Reply { value: json!(value), etag: None }
}

fn tagged<T: Serialize>(tagged: &VersionedObject<T>) -> Reply {
    Reply { value: json!(tagged.value), etag: tagged.etag.as_ref().map(|etag| etag.as_str().to_owned()) }
}

fn refusal(error: &Error) -> Refusal {
    let story = format!("{error:?}");
    Refusal {
        status: error.status().unwrap_or_else(|| panic!("{story}")),
        code: error.code().unwrap_or_default().to_owned(),
        request_id: error.request_id().unwrap_or_default().to_owned(),
    }
}
