//! The calls: method, path, parameters, body. Every type that holds a client has them.
//!
//! Two traits, so that code that must change nothing (a plan, a report) gets one that cannot.

use std::future::Future;

use hyper::Method;
use serde_json::json;
use vcn::{Family, Ocid};

use crate::address::{CreateAddress, CreateAddresses, IpObject, WorkRequest, names};
use crate::attachment::{AttachVnic, VnicAttachment};
use crate::client::Oci;
use crate::client::call::{delete, get, post};
use crate::error::Error;
use crate::instance::{Instance, Shape};
use crate::object::{Etag, VersionedObject};
use crate::retry_token::RetryToken;
use crate::subnet::Subnet;
use crate::vnic::{UpdateVnic, Vnic};

/// Reads what VNICs need. Changes nothing. Lists are complete.
pub trait CloudView: AsRef<Oci> + Send + Sync {
    /// An instance. 404 means gone or not readable.
    fn instance(&self, id: &Ocid) -> impl Future<Output = Result<Instance, Error>> + Send {
        async move {
            self.as_ref()
                .object(get("GetInstance", id.as_str(), format!("/instances/{id}")))
                .await
                .map(|read| read.value)
        }
    }

    /// The shapes offered in a compartment.
    fn shapes(&self, compartment: &Ocid) -> impl Future<Output = Result<Vec<Shape>, Error>> + Send {
        async move {
            let call = get("ListShapes", compartment.as_str(), "/shapes".to_owned());
            self.as_ref().list(call.with("compartmentId", compartment)).await
        }
    }

    /// The attachments of an instance, DETACHED ones included as long as the service keeps them. The compartment is the
    /// instance's, not the subnet's.
    fn vnic_attachments(
        &self,
        compartment: &Ocid,
        instance: Option<&Ocid>,
    ) -> impl Future<Output = Result<Vec<VnicAttachment>, Error>> + Send {
        async move {
            let subject = instance.unwrap_or(compartment).as_str();
            let mut call = get("ListVnicAttachments", subject, "/vnicAttachments".to_owned());
            call = call.with("compartmentId", compartment);
            if let Some(instance) = instance {
                call = call.with("instanceId", instance);
            }
            self.as_ref().list(call).await
        }
    }

    /// An attachment.
    fn vnic_attachment(
        &self,
        id: &Ocid,
    ) -> impl Future<Output = Result<VersionedObject<VnicAttachment>, Error>> + Send {
        async move { self.as_ref().object(get("GetVnicAttachment", id.as_str(), format!("/vnicAttachments/{id}"))).await }
    }

    /// A VNIC.
    fn vnic(&self, id: &Ocid) -> impl Future<Output = Result<VersionedObject<Vnic>, Error>> + Send {
        async move { self.as_ref().object(get("GetVnic", id.as_str(), format!("/vnics/{id}"))).await }
    }

    /// The addresses of one family that a VNIC holds, its own included.
    fn addresses(&self, vnic: &Ocid, family: Family) -> impl Future<Output = Result<Vec<IpObject>, Error>> + Send {
        async move {
            let names = names(family);
            self.as_ref().list(get(names.list, vnic.as_str(), format!("/{}", names.path)).with("vnicId", vnic)).await
        }
    }

    /// A subnet.
    fn subnet(&self, id: &Ocid) -> impl Future<Output = Result<Subnet, Error>> + Send {
        async move {
            self.as_ref().object(get("GetSubnet", id.as_str(), format!("/subnets/{id}"))).await.map(|read| read.value)
        }
    }
}

/// Reads and changes what VNICs need.
pub trait Cloud: CloudView {
    /// Attaches a VNIC to an instance. Returns while it is still ATTACHING. An instance accepts one at a time: another one is
    /// refused meanwhile (`Error::is_busy`).
    fn attach_vnic(
        &self,
        request: &AttachVnic,
        token: &RetryToken,
    ) -> impl Future<Output = Result<VersionedObject<VnicAttachment>, Error>> + Send {
        async move {
            let mut call = post("AttachVnic", request.instance_id.as_str(), "/vnicAttachments".to_owned(), request)?;
            call.retry_token = Some(token);
            self.as_ref().object(call).await
        }
    }

    /// Detaches a VNIC, which deletes it. Returns while it is still DETACHING.
    fn detach_vnic(
        &self,
        attachment: &Ocid,
        if_match: Option<&Etag>,
    ) -> impl Future<Output = Result<(), Error>> + Send {
        async move {
            let mut call = delete("DetachVnic", attachment.as_str(), format!("/vnicAttachments/{attachment}"));
            call.if_match = if_match;
            self.as_ref().call(&call).await.map(drop)
        }
    }

    /// Changes a VNIC, if it is still at the version that was read.
    fn update_vnic(
        &self,
        id: &Ocid,
        change: &UpdateVnic,
        if_match: Option<&Etag>,
    ) -> impl Future<Output = Result<VersionedObject<Vnic>, Error>> + Send {
        async move {
            let mut call = post("UpdateVnic", id.as_str(), format!("/vnics/{id}"), change)?;
            call.method = Method::PUT;
            call.if_match = if_match;
            self.as_ref().object(call).await
        }
    }

    /// Gives a VNIC another address, or a block.
    fn create_address(
        &self,
        family: Family,
        request: &CreateAddress,
        token: &RetryToken,
    ) -> impl Future<Output = Result<VersionedObject<IpObject>, Error>> + Send {
        async move {
            let names = names(family);
            let subject = request.vnic_id.as_ref().map_or("without a VNIC", Ocid::as_str);
            let mut call = post(names.create, subject, format!("/{}", names.path), request)?;
            call.retry_token = Some(token);
            self.as_ref().object(call).await
        }
    }

    /// Deletes an address.
    fn delete_address(&self, family: Family, id: &Ocid) -> impl Future<Output = Result<(), Error>> + Send {
        async move {
            let names = names(family);
            self.as_ref().call(&delete(names.delete, id.as_str(), format!("/{}/{id}", names.path))).await.map(drop)
        }
    }

    /// Gives a VNIC several addresses at once. Returns before they exist: list them.
    fn create_addresses(
        &self,
        family: Family,
        request: &CreateAddresses,
        token: &RetryToken,
    ) -> impl Future<Output = Result<WorkRequest, Error>> + Send {
        async move {
            let names = names(family);
            let (operation, action, items) = names.bulk_create;
            let body = json!({ "vnicId": request.vnic_id, items: request.items });
            let mut call =
                post(operation, request.vnic_id.as_str(), format!("/{}/actions/{action}", names.path), &body)?;
            call.retry_token = Some(token);
            self.as_ref().work(&call).await
        }
    }
}

impl<C: AsRef<Oci> + Send + Sync> CloudView for C {}
impl<C: CloudView> Cloud for C {}
