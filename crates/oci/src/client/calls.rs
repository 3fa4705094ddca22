//! The calls, one function each: method, path, parameters, body. Every type that holds a client has them.

use hyper::Method;
use serde::Serialize;
use serde_json::{Value, json};
use vcn::{Family, Ocid};

use crate::address::{CreateAddress, CreateAddresses, IpObject, WorkRequest, names};
use crate::attachment::{AttachVnic, VnicAttachment};
use crate::client::Oci;
use crate::client::call::Call;
use crate::cloud::{Cloud, CloudView};
use crate::error::Error;
use crate::instance::{Instance, Shape};
use crate::retry_token::RetryToken;
use crate::subnet::Subnet;
use crate::tagged::{Etag, Tagged};
use crate::vnic::{UpdateVnic, Vnic};

impl<C: AsRef<Oci> + Send + Sync> CloudView for C {
    async fn instance(&self, id: &Ocid) -> Result<Instance, Error> {
        self.as_ref().object(get("GetInstance", id.as_str(), format!("/instances/{id}"))).await.map(|read| read.value)
    }

    async fn shapes(&self, compartment: &Ocid) -> Result<Vec<Shape>, Error> {
        let call = get("ListShapes", compartment.as_str(), "/shapes".to_owned());
        self.as_ref().list(call.with("compartmentId", compartment)).await
    }

    async fn vnic_attachments(
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
        self.as_ref().list(call).await
    }

    async fn vnic_attachment(&self, id: &Ocid) -> Result<Tagged<VnicAttachment>, Error> {
        self.as_ref().object(get("GetVnicAttachment", id.as_str(), format!("/vnicAttachments/{id}"))).await
    }

    async fn vnic(&self, id: &Ocid) -> Result<Tagged<Vnic>, Error> {
        self.as_ref().object(get("GetVnic", id.as_str(), format!("/vnics/{id}"))).await
    }

    async fn addresses(&self, vnic: &Ocid, family: Family) -> Result<Vec<IpObject>, Error> {
        let names = names(family);
        self.as_ref().list(get(names.list, vnic.as_str(), format!("/{}", names.path)).with("vnicId", vnic)).await
    }

    async fn subnet(&self, id: &Ocid) -> Result<Subnet, Error> {
        self.as_ref().object(get("GetSubnet", id.as_str(), format!("/subnets/{id}"))).await.map(|read| read.value)
    }
}

impl<C: AsRef<Oci> + Send + Sync> Cloud for C {
    async fn attach_vnic(&self, request: &AttachVnic, token: &RetryToken) -> Result<Tagged<VnicAttachment>, Error> {
        let mut call = post("AttachVnic", request.instance_id.as_str(), "/vnicAttachments".to_owned(), request)?;
        call.retry_token = Some(token);
        self.as_ref().object(call).await
    }

    async fn detach_vnic(&self, attachment: &Ocid, if_match: Option<&Etag>) -> Result<(), Error> {
        let mut call = delete("DetachVnic", attachment.as_str(), format!("/vnicAttachments/{attachment}"));
        call.if_match = if_match;
        self.as_ref().call(&call).await.map(drop)
    }

    async fn update_vnic(
        &self,
        id: &Ocid,
        change: &UpdateVnic,
        if_match: Option<&Etag>,
    ) -> Result<Tagged<Vnic>, Error> {
        let mut call = post("UpdateVnic", id.as_str(), format!("/vnics/{id}"), change)?;
        call.method = Method::PUT;
        call.if_match = if_match;
        self.as_ref().object(call).await
    }

    async fn create_address(
        &self,
        family: Family,
        request: &CreateAddress,
        token: &RetryToken,
    ) -> Result<Tagged<IpObject>, Error> {
        let names = names(family);
        let subject = request.vnic_id.as_ref().map_or("without a VNIC", Ocid::as_str);
        let mut call = post(names.create, subject, format!("/{}", names.path), request)?;
        call.retry_token = Some(token);
        self.as_ref().object(call).await
    }

    async fn delete_address(&self, family: Family, id: &Ocid) -> Result<(), Error> {
        let names = names(family);
        self.as_ref().call(&delete(names.delete, id.as_str(), format!("/{}/{id}", names.path))).await.map(drop)
    }

    async fn create_addresses(
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
        self.as_ref().work(&call).await
    }

    async fn delete_addresses(&self, family: Family, vnic: &Ocid, ids: &[Ocid]) -> Result<WorkRequest, Error> {
        let names = names(family);
        let (operation, action, items) = names.bulk_delete;
        let ids: Vec<Value> = ids.iter().map(|id| json!({ names.id: id })).collect();
        let body = json!({ "vnicId": vnic, items: ids });
        let call = post(operation, vnic.as_str(), format!("/{}/actions/{action}", names.path), &body)?;
        self.as_ref().work(&call).await
    }
}

impl AsRef<Self> for Oci {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl Oci {
    async fn work(&self, call: &Call<'_>) -> Result<WorkRequest, Error> {
        let (answer, _) = self.call(call).await?;
        Ok(WorkRequest(answer.header("opc-work-request-id").unwrap_or_default().to_owned()))
    }
}

impl Call<'_> {
    fn with(mut self, name: &'static str, value: &Ocid) -> Self {
        self.query.push((name, value.to_string()));
        self
    }
}

fn get<'a>(operation: &'static str, subject: &'a str, path: String) -> Call<'a> {
    Call {
        operation,
        subject,
        method: Method::GET,
        path,
        query: Vec::new(),
        body: None,
        retry_token: None,
        if_match: None,
    }
}

fn delete<'a>(operation: &'static str, subject: &'a str, path: String) -> Call<'a> {
    Call { method: Method::DELETE, ..get(operation, subject, path) }
}

fn post<'a>(operation: &'static str, subject: &'a str, path: String, body: &impl Serialize) -> Result<Call<'a>, Error> {
    let body = serde_json::to_vec(body).map_err(|error| Error::setup_by(format!("the body of {operation}"), error))?;
    Ok(Call { method: Method::POST, body: Some(body), ..get(operation, subject, path) })
}
