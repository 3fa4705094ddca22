//! The calls as the cloud in memory answers them: each is counted, and may be refused, late or lost.

use vcn::{Family, Ocid};

use super::FakeCloud;
use super::state::{self, State};
use crate::address::{CreateAddress, CreateAddresses, IpObject, WorkRequest, names};
use crate::attachment::{AttachVnic, VnicAttachment};
use crate::cloud::{Cloud, CloudView};
use crate::error::{Error, Refusal};
use crate::instance::{Instance, Shape};
use crate::retry_token::RetryToken;
use crate::subnet::Subnet;
use crate::tagged::{Etag, Tagged};
use crate::vnic::{UpdateVnic, Vnic};

fn another_wish() -> Refusal {
    let message = "the retry token was used with another body".to_owned();
    Refusal { status: 400, code: "InvalidParameter".to_owned(), message, retry_after: None }
}

pub(super) fn come(state: &mut State) -> Result<(), Refusal> {
    let count = state.coming.len().min(state.bulk_pace.unwrap_or(usize::MAX));
    let items: Vec<_> = state.coming.drain(..count).collect();
    items.into_iter().try_for_each(|(vnic, family, item)| state.create_address((&vnic, family), &item, None).map(drop))
}

impl CloudView for FakeCloud {
    async fn instance(&self, id: &Ocid) -> Result<Instance, Error> {
        self.call("GetInstance", id, |state| state.instance(id).map(|(instance, _)| instance.clone())).await
    }

    async fn shapes(&self, compartment: &Ocid) -> Result<Vec<Shape>, Error> {
        self.call("ListShapes", compartment, |state| Ok(state.shapes())).await
    }

    async fn vnic_attachments(
        &self,
        compartment: &Ocid,
        instance: Option<&Ocid>,
    ) -> Result<Vec<VnicAttachment>, Error> {
        let fits = |attachment: &VnicAttachment| {
            attachment.compartment_id == *compartment && instance.is_none_or(|id| attachment.instance_id == *id)
        };
        self.call("ListVnicAttachments", instance.unwrap_or(compartment), |state| Ok(state.list(fits))).await
    }

    async fn vnic_attachment(&self, id: &Ocid) -> Result<Tagged<VnicAttachment>, Error> {
        self.call("GetVnicAttachment", id, |state| state.attachment(id)).await
    }

    async fn vnic(&self, id: &Ocid) -> Result<Tagged<Vnic>, Error> {
        self.call("GetVnic", id, |state| state.vnic(id)).await
    }

    async fn addresses(&self, vnic: &Ocid, family: Family) -> Result<Vec<IpObject>, Error> {
        self.call_as(("ListAddresses", names(family).list), vnic, |state| state.list_addresses(vnic, family)).await
    }

    async fn subnet(&self, id: &Ocid) -> Result<Subnet, Error> {
        self.call("GetSubnet", id, |state| state.subnets.get(id).cloned().ok_or_else(state::not_found)).await
    }
}

impl Cloud for FakeCloud {
    async fn attach_vnic(&self, wish: &AttachVnic, token: &RetryToken) -> Result<Tagged<VnicAttachment>, Error> {
        self.call("AttachVnic", &wish.instance_id, |state| {
            let subnet = wish.create_vnic_details.subnet_id.as_ref();
            if let Some(refusal) = subnet.and_then(|subnet| state.refused_subnets.get(subnet)) {
                return Err(refusal.clone());
            }
            if state.wishes.get(token).is_some_and(|first| first != wish) {
                return Err(state.other_wish.clone().unwrap_or_else(another_wish));
            }
            let made = state.attach(wish, token)?;
            state.wishes.insert(token.clone(), wish.clone());
            Ok(made)
        })
        .await
    }

    async fn detach_vnic(&self, attachment: &Ocid, if_match: Option<&Etag>) -> Result<(), Error> {
        self.call("DetachVnic", attachment, |state| state.detach(attachment, if_match)).await
    }

    async fn update_vnic(
        &self,
        id: &Ocid,
        change: &UpdateVnic,
        if_match: Option<&Etag>,
    ) -> Result<Tagged<Vnic>, Error> {
        self.call("UpdateVnic", id, |state| match state.in_vain.contains("UpdateVnic") {
            true => state.vnic(id),
            false => state.update_vnic(id, change, if_match),
        })
        .await
    }

    async fn create_address(
        &self,
        family: Family,
        wish: &CreateAddress,
        token: &RetryToken,
    ) -> Result<Tagged<IpObject>, Error> {
        let Some(vnic) = wish.vnic_id.clone() else { return Err(Error::setup("an address without a VNIC")) };
        self.call_as(("CreateAddress", names(family).create), &vnic, |state| {
            state.create_address((&vnic, family), wish, Some(token))
        })
        .await
    }

    async fn delete_address(&self, family: Family, id: &Ocid) -> Result<(), Error> {
        self.call_as(("DeleteAddress", names(family).delete), id, |state| {
            match state.in_vain.contains("DeleteAddress") {
                true => Ok(()),
                false => state.delete_address(id),
            }
        })
        .await
    }

    async fn create_addresses(
        &self,
        family: Family,
        wish: &CreateAddresses,
        token: &RetryToken,
    ) -> Result<WorkRequest, Error> {
        self.call_as(("BulkCreateAddresses", names(family).bulk_create.0), &wish.vnic_id, |state| {
            let subnet = state.vnic(&wish.vnic_id)?.value.subnet_id.ok_or_else(state::not_found)?;
            for item in &wish.items {
                state.block(&subnet, family, item)?;
            }
            if state.bulks.insert(token.clone()) {
                let items = wish.items.iter().map(|item| (wish.vnic_id.clone(), family, item.clone()));
                state.coming.extend(items);
                come(state)?;
            }
            Ok(WorkRequest(format!("work-{token}")))
        })
        .await
    }

    async fn delete_addresses(&self, family: Family, vnic: &Ocid, ids: &[Ocid]) -> Result<WorkRequest, Error> {
        self.call_as(("BulkDeleteAddresses", names(family).bulk_delete.0), vnic, |state| {
            for id in ids {
                state.delete_address(id)?;
            }
            Ok(WorkRequest("work".to_owned()))
        })
        .await
    }
}
