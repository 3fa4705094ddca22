//! The calls as traits.
//!
//! Two of them, so that code that must change nothing (a plan, a report) gets one that cannot.

use std::future::Future;

use vcn::{Family, Ocid};

use crate::address::{CreateAddress, CreateAddresses, IpObject, WorkRequest};
use crate::attachment::{AttachVnic, VnicAttachment};
use crate::error::Error;
use crate::instance::{Instance, Shape};
use crate::retry_token::RetryToken;
use crate::subnet::Subnet;
use crate::tagged::{Etag, Tagged};
use crate::vnic::{UpdateVnic, Vnic};

/// Reads what VNICs need. Changes nothing. Lists are complete.
pub trait CloudView: Send + Sync {
    /// An instance. 404 means gone or not readable.
    fn instance(&self, id: &Ocid) -> impl Future<Output = Result<Instance, Error>> + Send;

    /// The shapes offered in a compartment.
    fn shapes(&self, compartment: &Ocid) -> impl Future<Output = Result<Vec<Shape>, Error>> + Send;

    /// The attachments of an instance, DETACHED ones included as long as the service keeps them. The compartment is the
    /// instance's, not the subnet's.
    fn vnic_attachments(
        &self,
        compartment: &Ocid,
        instance: Option<&Ocid>,
    ) -> impl Future<Output = Result<Vec<VnicAttachment>, Error>> + Send;

    /// An attachment.
    fn vnic_attachment(&self, id: &Ocid) -> impl Future<Output = Result<Tagged<VnicAttachment>, Error>> + Send;

    /// A VNIC.
    fn vnic(&self, id: &Ocid) -> impl Future<Output = Result<Tagged<Vnic>, Error>> + Send;

    /// The addresses of one family that a VNIC holds, its own included.
    fn addresses(&self, vnic: &Ocid, family: Family) -> impl Future<Output = Result<Vec<IpObject>, Error>> + Send;

    /// A subnet.
    fn subnet(&self, id: &Ocid) -> impl Future<Output = Result<Subnet, Error>> + Send;
}

/// Reads and changes what VNICs need.
pub trait Cloud: CloudView {
    /// Attaches a VNIC to an instance. Returns while it is still ATTACHING. An instance accepts one at a time: another one is
    /// refused meanwhile (`Error::is_busy`).
    fn attach_vnic(
        &self,
        request: &AttachVnic,
        token: &RetryToken,
    ) -> impl Future<Output = Result<Tagged<VnicAttachment>, Error>> + Send;

    /// Detaches a VNIC, which deletes it. Returns while it is still DETACHING.
    fn detach_vnic(&self, attachment: &Ocid, if_match: Option<&Etag>)
    -> impl Future<Output = Result<(), Error>> + Send;

    /// Changes a VNIC, if it is still at the version that was read.
    fn update_vnic(
        &self,
        id: &Ocid,
        change: &UpdateVnic,
        if_match: Option<&Etag>,
    ) -> impl Future<Output = Result<Tagged<Vnic>, Error>> + Send;

    /// Gives a VNIC another address, or a block.
    fn create_address(
        &self,
        family: Family,
        request: &CreateAddress,
        token: &RetryToken,
    ) -> impl Future<Output = Result<Tagged<IpObject>, Error>> + Send;

    /// Deletes an address.
    fn delete_address(&self, family: Family, id: &Ocid) -> impl Future<Output = Result<(), Error>> + Send;

    /// Gives a VNIC several addresses at once. Returns before they exist: list them.
    fn create_addresses(
        &self,
        family: Family,
        request: &CreateAddresses,
        token: &RetryToken,
    ) -> impl Future<Output = Result<WorkRequest, Error>> + Send;

    /// Deletes several addresses of a VNIC at once. Returns before they are gone.
    fn delete_addresses(
        &self,
        family: Family,
        vnic: &Ocid,
        ids: &[Ocid],
    ) -> impl Future<Output = Result<WorkRequest, Error>> + Send;
}
