//! What is asked of the cloud, whoever answers.
//!
//! Two traits, so that whoever must change nothing (a plan, a report) can be given what cannot.

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

/// What the cloud has, as far as VNICs need it. Changes nothing. All errors are [`Error`]; lists are whole.
pub trait CloudView: Send + Sync {
    /// An instance. 404 means gone or not ours to see.
    fn instance(&self, id: &Ocid) -> impl Future<Output = Result<Instance, Error>> + Send;

    /// The shapes offered in a compartment.
    fn shapes(&self, compartment: &Ocid) -> impl Future<Output = Result<Vec<Shape>, Error>> + Send;

    /// The attachments of an instance, those that are DETACHED included as long as the service keeps them. The
    /// compartment is the instance's, not the subnet's.
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

/// The cloud, as far as VNICs need it: what it has, and changes to it.
pub trait Cloud: CloudView {
    /// Asks for a VNIC on an instance. Comes back while it is still ATTACHING. One at a time per instance: another one
    /// meanwhile is refused (`Error::is_busy`).
    fn attach_vnic(
        &self,
        wish: &AttachVnic,
        token: &RetryToken,
    ) -> impl Future<Output = Result<Tagged<VnicAttachment>, Error>> + Send;

    /// Detaches a VNIC, which deletes it. Comes back while it is still DETACHING.
    fn detach_vnic(&self, attachment: &Ocid, if_match: Option<&Etag>)
    -> impl Future<Output = Result<(), Error>> + Send;

    /// Changes a VNIC, if it still is in the version that was read.
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
        wish: &CreateAddress,
        token: &RetryToken,
    ) -> impl Future<Output = Result<Tagged<IpObject>, Error>> + Send;

    /// Takes an address away.
    fn delete_address(&self, family: Family, id: &Ocid) -> impl Future<Output = Result<(), Error>> + Send;

    /// Asks for several addresses at once. Comes back before they are there: list them.
    fn create_addresses(
        &self,
        family: Family,
        wish: &CreateAddresses,
        token: &RetryToken,
    ) -> impl Future<Output = Result<WorkRequest, Error>> + Send;

    /// Takes several addresses of a VNIC away at once. Comes back before they are gone.
    fn delete_addresses(
        &self,
        family: Family,
        vnic: &Ocid,
        ids: &[Ocid],
    ) -> impl Future<Output = Result<WorkRequest, Error>> + Send;
}
