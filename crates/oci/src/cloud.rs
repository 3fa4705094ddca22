//! The calls: method, path, parameters, body.

use hyper::Method;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use vcn::{Family, Ocid};

use crate::address::{CreateAddress, CreateAddresses, IpObject, WorkRequest, names};
use crate::agent_plugin::AgentPlugin;
use crate::attachment::{AttachVnic, VnicAttachment};
use crate::client::call::{Call, delete, get, post};
use crate::client::{CloudView, Oci};
use crate::error::Error;
use crate::host::{ComputeHost, MaintenanceEvent};
use crate::instance::{Instance, Shape};
use crate::object::{Etag, VersionedObject};
use crate::retry_token::RetryToken;
use crate::subnet::Subnet;
use crate::vnic::{UpdateVnic, Vnic};

/// The version of the API of instances' agents.
const INSTANCE_AGENT: &str = "20180530";

/// What can be read of a list that informs only: one entry must not hide the others.
fn readable<T: DeserializeOwned>(all: Vec<Value>) -> Vec<T> {
    all.into_iter().filter_map(|entry| serde_json::from_value(entry).ok()).collect()
}

/// What changes nothing. Lists are complete.
impl CloudView {
    /// An instance. 404 means gone or not readable.
    pub async fn instance(&self, id: &Ocid) -> Result<Instance, Error> {
        self.object(get("GetInstance", id.as_str(), format!("/instances/{id}"))).await.map(|read| read.value)
    }

    /// What the plugins of an instance's cloud agent reported. The compartment is the instance's.
    pub async fn agent_plugins(&self, compartment: &Ocid, instance: &Ocid) -> Result<Vec<AgentPlugin>, Error> {
        let path = format!("/instanceagents/{instance}/plugins");
        let call = get("ListInstanceAgentPlugins", instance.as_str(), path).with("compartmentId", compartment);
        self.list(Call { version: INSTANCE_AGENT, ..call }).await
    }

    /// The bare-metal hosts of a tenancy, which are in its root compartment. An entry that cannot be read is left out.
    pub async fn compute_hosts(&self, tenancy: &Ocid) -> Result<Vec<ComputeHost>, Error> {
        let call = get("ListComputeHosts", tenancy.as_str(), "/computeHosts".to_owned());
        self.collection(call.with("compartmentId", tenancy)).await.map(readable)
    }

    /// Maintenance of the instances of a compartment, past ones included. An entry that cannot be read is left out.
    pub async fn maintenance_events(&self, compartment: &Ocid) -> Result<Vec<MaintenanceEvent>, Error> {
        let call = get("ListInstanceMaintenanceEvents", compartment.as_str(), "/instanceMaintenanceEvents".to_owned());
        self.list(call.with("compartmentId", compartment)).await.map(readable)
    }

    /// The shapes offered in a compartment.
    pub async fn shapes(&self, compartment: &Ocid) -> Result<Vec<Shape>, Error> {
        let call = get("ListShapes", compartment.as_str(), "/shapes".to_owned());
        self.list(call.with("compartmentId", compartment)).await
    }

    /// The attachments of an instance, DETACHED ones included as long as the service keeps them. The compartment is the
    /// instance's, not the subnet's.
    pub async fn vnic_attachments(
        &self,
        compartment: &Ocid,
        instance: Option<&Ocid>,
    ) -> Result<Vec<VnicAttachment>, Error> {
        let subject = instance.unwrap_or(compartment).as_str();
        let mut call = get("ListVnicAttachments", subject, "/vnicAttachments".to_owned());
        call = call.with("compartmentId", compartment);
        if let Some(instance) = instance {
            call = call.with("instanceId", instance);
        }
        self.list(call).await
    }

    /// Reads an attachment by its OCID.
    pub async fn vnic_attachment(&self, id: &Ocid) -> Result<VersionedObject<VnicAttachment>, Error> {
        self.object(get("GetVnicAttachment", id.as_str(), format!("/vnicAttachments/{id}"))).await
    }

    /// Reads a VNIC by its OCID.
    pub async fn vnic(&self, id: &Ocid) -> Result<VersionedObject<Vnic>, Error> {
        self.object(get("GetVnic", id.as_str(), format!("/vnics/{id}"))).await
    }

    /// The addresses of one family that a VNIC holds, its own included.
    pub async fn addresses(&self, vnic: &Ocid, family: Family) -> Result<Vec<IpObject>, Error> {
        let names = names(family);
        self.list(get(names.list, vnic.as_str(), format!("/{}", names.path)).with("vnicId", vnic)).await
    }

    /// Reads a subnet by its OCID.
    pub async fn subnet(&self, id: &Ocid) -> Result<Subnet, Error> {
        self.object(get("GetSubnet", id.as_str(), format!("/subnets/{id}"))).await.map(|read| read.value)
    }
}

impl Oci {
    /// Attaches a VNIC to an instance. Returns while it is still ATTACHING. An instance accepts one at a time: another one is
    /// refused meanwhile (`Error::is_busy`).
    pub async fn attach_vnic(
        &self,
        request: &AttachVnic,
        token: &RetryToken,
    ) -> Result<VersionedObject<VnicAttachment>, Error> {
        let mut call = post("AttachVnic", request.instance_id.as_str(), "/vnicAttachments".to_owned(), request)?;
        call.retry_token = Some(token);
        self.object(call).await
    }

    /// Detaches a VNIC, which deletes it. Returns while it is still DETACHING.
    pub async fn detach_vnic(&self, attachment: &Ocid, if_match: Option<&Etag>) -> Result<(), Error> {
        let mut call = delete("DetachVnic", attachment.as_str(), format!("/vnicAttachments/{attachment}"));
        call.if_match = if_match;
        self.call(&call).await.map(drop)
    }

    /// Changes a VNIC, if it is still at the version that was read.
    pub async fn update_vnic(
        &self,
        id: &Ocid,
        change: &UpdateVnic,
        if_match: Option<&Etag>,
    ) -> Result<VersionedObject<Vnic>, Error> {
        let mut call = post("UpdateVnic", id.as_str(), format!("/vnics/{id}"), change)?;
        call.method = Method::PUT;
        call.if_match = if_match;
        self.object(call).await
    }

    /// Gives a VNIC another address, or a block.
    pub async fn create_address(
        &self,
        family: Family,
        request: &CreateAddress,
        token: &RetryToken,
    ) -> Result<VersionedObject<IpObject>, Error> {
        let names = names(family);
        let subject = request.vnic_id.as_ref().map_or("without a VNIC", Ocid::as_str);
        let mut call = post(names.create, subject, format!("/{}", names.path), request)?;
        call.retry_token = Some(token);
        self.object(call).await
    }

    /// Restarts an instance: OCI requests a shutdown from its system, and cuts the power if it still runs after 15 minutes. Returns once the
    /// restart is accepted. A repetition with the same token, within 24 hours, restarts nothing again.
    pub async fn soft_reset(&self, instance: &Ocid, token: &RetryToken) -> Result<Instance, Error> {
        let mut call = get("InstanceAction", instance.as_str(), format!("/instances/{instance}"));
        call.method = Method::POST;
        call.body = Some(Vec::new());
        call.query.push(("action", "SOFTRESET".to_owned()));
        call.retry_token = Some(token);
        self.object(call).await.map(|read| read.value)
    }

    /// Deletes an address by its OCID.
    pub async fn delete_address(&self, family: Family, id: &Ocid) -> Result<(), Error> {
        let names = names(family);
        self.call(&delete(names.delete, id.as_str(), format!("/{}/{id}", names.path))).await.map(drop)
    }

    /// Gives a VNIC several addresses at once. Returns before they exist: list them.
    pub async fn create_addresses(
        &self,
        family: Family,
        request: &CreateAddresses,
        token: &RetryToken,
    ) -> Result<WorkRequest, Error> {
        let names = names(family);
        let (operation, action, items) = names.bulk_create;
        let body = json!({ "vnicId": request.vnic_id, items: request.items });
        let mut call = post(operation, request.vnic_id.as_str(), format!("/{}/actions/{action}", names.path), &body)?;
        call.retry_token = Some(token);
        self.work(&call).await
    }
}
