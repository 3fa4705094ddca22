//! What the cloud in memory knows, and its rules.

mod block;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use vcn::{Family, MacAddr, Ocid};

use crate::address::{AddressState, CreateAddress, IpObject, Lifetime};
use crate::attachment::{AttachVnic, AttachmentState, CreateVnic, VnicAttachment};
use crate::error::Refusal;
use crate::instance::{Instance, InstanceState, Shape};
use crate::retry_token::RetryToken;
use crate::subnet::Subnet;
use crate::tagged::{Etag, Tagged};
use crate::vnic::{UpdateVnic, Vnic, VnicState};
use block::{nth, size};

#[derive(Debug, Default)]
pub(super) struct State {
    /// With the most VNICs of each.
    pub(super) instances: BTreeMap<Ocid, (Instance, usize)>,
    pub(super) subnets: BTreeMap<Ocid, Subnet>,
    /// With the VNIC, which is told once it is ATTACHED.
    pub(super) attachments: Vec<(VnicAttachment, Vnic)>,
    pub(super) addresses: Vec<IpObject>,
    pub(super) bulks: BTreeSet<RetryToken>,
    /// How many addresses of bulk requests come at a time; absent: all.
    pub(super) bulk_pace: Option<usize>,
    /// Those that are still to come.
    pub(super) coming: Vec<(Ocid, Family, CreateAddress)>,
    pub(super) failures: Vec<(&'static str, Refusal, bool)>,
    /// Subnets in which no VNIC is made, and how that is refused.
    pub(super) refused_subnets: BTreeMap<Ocid, Refusal>,
    /// What nobody may see.
    pub(super) forbidden: BTreeSet<String>,
    /// Operations that are taken and not carried out.
    pub(super) in_vain: BTreeSet<&'static str>,
    pub(super) calls: Vec<(&'static str, String)>,
    /// How late answers come, by operation.
    pub(super) late: BTreeMap<&'static str, std::time::Duration>,
    /// How many calls are answered before one is not, and whether that is carried out.
    pub(super) halt: Option<(usize, bool)>,
    /// How many lists a new attachment is not in yet.
    pub(super) list_lag: u32,
    /// In how many lists more an attachment is not.
    pub(super) unlisted: BTreeMap<Ocid, u32>,
    /// In which state lists show an attachment, whatever its own.
    pub(super) frozen: BTreeMap<Ocid, AttachmentState>,
    /// What was made by a token: an attachment or an address.
    made: BTreeMap<RetryToken, Ocid>,
    /// What was asked for with it, and how another wish is refused.
    pub(super) wishes: BTreeMap<RetryToken, AttachVnic>,
    pub(super) other_wish: Option<Refusal>,
    /// By OCID; absent is 1.
    versions: BTreeMap<Ocid, u64>,
    number: u64,
}

/// The first host number that is given out: OCI keeps the network's and the router's.
const FIRST: u64 = 2;

impl State {
    pub(super) fn add_instance(&mut self, instance: Instance, subnet: &Ocid, most: usize) {
        let wish = AttachVnic {
            instance_id: instance.id.clone(),
            create_vnic_details: CreateVnic { subnet_id: Some(subnet.clone()), ..CreateVnic::default() },
            display_name: None,
            nic_index: None,
        };
        self.instances.insert(instance.id.clone(), (instance, most.max(1)));
        let made = self.make(&wish);
        if let Ok(id) = made {
            self.set(&id, AttachmentState::Attached);
            if let Some((_, vnic)) = self.attachments.iter_mut().find(|(attachment, _)| attachment.id == id) {
                vnic.is_primary = true;
            }
        }
    }

    pub(super) fn settle(&mut self) {
        let passing: Vec<_> = self
            .attachments
            .iter()
            .map(|(attachment, _)| (attachment.id.clone(), attachment.lifecycle_state))
            .collect();
        for (id, state) in passing {
            match state {
                AttachmentState::Attaching => self.set(&id, AttachmentState::Attached),
                AttachmentState::Detaching => self.set(&id, AttachmentState::Detached),
                _ => {}
            }
        }
    }

    pub(super) fn set(&mut self, id: &Ocid, state: AttachmentState) {
        let Some((attachment, vnic)) = self.attachments.iter_mut().find(|(attachment, _)| attachment.id == *id) else {
            return;
        };
        attachment.lifecycle_state = state;
        if state == AttachmentState::Attached {
            attachment.vnic_id = Some(vnic.id.clone());
            attachment.vlan_tag = Some(0);
        }
        if state == AttachmentState::Detached {
            let gone = vnic.id.clone();
            self.addresses.retain(|address| address.vnic_id.as_ref() != Some(&gone));
        }
        *self.versions.entry(id.clone()).or_insert(1) += 1;
    }

    pub(super) fn instance(&self, id: &Ocid) -> Result<&(Instance, usize), Refusal> {
        self.instances.get(id).ok_or_else(not_found)
    }

    pub(super) fn shapes(&self) -> Vec<Shape> {
        let all = self.instances.values().map(|(instance, most)| (instance.shape.clone(), *most));
        let all: BTreeMap<String, usize> = all.collect();
        all.into_iter()
            .map(|(shape, most)| Shape {
                shape,
                max_vnic_attachments: u32::try_from(most).ok(),
                max_vnic_attachment_options: None,
                network_ports: None,
            })
            .collect()
    }

    pub(super) fn attachment(&self, id: &Ocid) -> Result<Tagged<VnicAttachment>, Refusal> {
        let (attachment, _) = self.attachments.iter().find(|(own, _)| own.id == *id).ok_or_else(not_found)?;
        Ok(self.tagged(id, attachment.clone()))
    }

    /// Attachments as a list has them, which may be behind.
    pub(super) fn list(&mut self, fits: impl Fn(&VnicAttachment) -> bool) -> Vec<VnicAttachment> {
        let mut all: Vec<VnicAttachment> = self.attachments.iter().map(|(own, _)| own.clone()).collect();
        all.retain(|own| {
            let listed = self.unlisted.get_mut(&own.id).is_none_or(|lists| {
                let listed = *lists == 0;
                *lists = lists.saturating_sub(u32::from(fits(own)));
                listed
            });
            listed && fits(own)
        });
        all.iter_mut().for_each(|own| own.lifecycle_state = *self.frozen.get(&own.id).unwrap_or(&own.lifecycle_state));
        all
    }

    pub(super) fn attach(&mut self, wish: &AttachVnic, token: &RetryToken) -> Result<Tagged<VnicAttachment>, Refusal> {
        if let Some(id) = self.made.get(token) {
            let made = self.attachment(id)?;
            if !made.value.lifecycle_state.counts() {
                return Err(refuse(409, "InvalidatedRetryToken"));
            }
            return Ok(made);
        }
        let (instance, most) = self.instance(&wish.instance_id)?;
        if !matches!(instance.lifecycle_state, InstanceState::Running | InstanceState::Stopped) {
            return Err(refuse(409, "IncorrectState"));
        }
        let most = *most;
        let mut own = self.attachments.iter().filter(|(own, _)| own.instance_id == wish.instance_id);
        if own.any(|(own, _)| own.lifecycle_state.is_passing()) {
            return Err(refuse(409, "Conflict"));
        }
        let own = self.attachments.iter().filter(|(own, _)| own.instance_id == wish.instance_id);
        if own.filter(|(own, _)| own.lifecycle_state.counts()).count() >= most {
            return Err(refuse(400, "LimitExceeded"));
        }
        let id = self.make(wish)?;
        self.made.insert(token.clone(), id.clone());
        self.unlisted.insert(id.clone(), self.list_lag);
        self.attachment(&id)
    }

    pub(super) fn detach(&mut self, id: &Ocid, if_match: Option<&Etag>) -> Result<(), Refusal> {
        let found = self.attachments.iter().find(|(own, _)| own.id == *id);
        let (attachment, vnic) = found.ok_or_else(not_found)?;
        self.check_version(id, if_match)?;
        match attachment.lifecycle_state {
            AttachmentState::Detached => Err(not_found()),
            _ if vnic.is_primary => Err(refuse(400, "InvalidParameter")),
            AttachmentState::Attached => {
                self.set(id, AttachmentState::Detaching);
                Ok(())
            }
            _ => Err(refuse(409, "Conflict")),
        }
    }

    pub(super) fn vnic(&self, id: &Ocid) -> Result<Tagged<Vnic>, Refusal> {
        let mut present = self
            .attachments
            .iter()
            .filter(|(own, _)| matches!(own.lifecycle_state, AttachmentState::Attached | AttachmentState::Detaching));
        let (_, vnic) = present.find(|(_, vnic)| vnic.id == *id).ok_or_else(not_found)?;
        Ok(self.tagged(id, vnic.clone()))
    }

    pub(super) fn update_vnic(
        &mut self,
        id: &Ocid,
        change: &UpdateVnic,
        if_match: Option<&Etag>,
    ) -> Result<Tagged<Vnic>, Refusal> {
        self.vnic(id)?;
        self.check_version(id, if_match)?;
        if let Some((_, vnic)) = self.attachments.iter_mut().find(|(_, vnic)| vnic.id == *id) {
            let UpdateVnic {
                display_name,
                hostname_label,
                nsg_ids,
                skip_source_dest_check,
                route_table_id,
                freeform_tags,
                defined_tags,
            } = change.clone();
            vnic.display_name = display_name.or(vnic.display_name.take());
            vnic.hostname_label = hostname_label.or(vnic.hostname_label.take());
            vnic.route_table_id = route_table_id.or(vnic.route_table_id.take());
            vnic.nsg_ids = nsg_ids.unwrap_or_else(|| vnic.nsg_ids.clone());
            vnic.skip_source_dest_check = skip_source_dest_check.unwrap_or(vnic.skip_source_dest_check);
            vnic.freeform_tags = freeform_tags.unwrap_or_else(|| vnic.freeform_tags.clone());
            vnic.defined_tags = defined_tags.unwrap_or_else(|| vnic.defined_tags.clone());
        }
        *self.versions.entry(id.clone()).or_insert(1) += 1;
        self.vnic(id)
    }

    pub(super) fn list_addresses(&self, vnic: &Ocid, family: Family) -> Result<Vec<IpObject>, Refusal> {
        self.vnic(vnic)?;
        let all = self
            .addresses
            .iter()
            .filter(|address| address.vnic_id.as_ref() == Some(vnic) && Family::of(address.ip_address) == family);
        Ok(all.cloned().collect())
    }

    pub(super) fn create_address(
        &mut self,
        (vnic, family): (&Ocid, Family),
        wish: &CreateAddress,
        token: Option<&RetryToken>,
    ) -> Result<Tagged<IpObject>, Refusal> {
        if let Some(id) = token.and_then(|token| self.made.get(token)) {
            let made = self.addresses.iter().find(|address| address.id == *id);
            return made.map(|made| self.tagged(id, made.clone())).ok_or_else(|| refuse(409, "InvalidatedRetryToken"));
        }
        let subnet = self.vnic(vnic)?.value.subnet_id.ok_or_else(not_found)?;
        let object = self.new_address((&subnet, vnic), family, wish)?;
        if let Some((_, vnic)) = self.attachments.iter_mut().find(|(_, own)| own.id == *vnic)
            && family == Family::Ipv6
        {
            vnic.ipv6_addresses.push(object.ip_address);
        }
        if let Some(token) = token {
            self.made.insert(token.clone(), object.id.clone());
        }
        Ok(self.tagged(&object.id, object.clone()))
    }

    pub(super) fn delete_address(&mut self, id: &Ocid) -> Result<(), Refusal> {
        let found = self.addresses.iter().position(|address| address.id == *id).ok_or_else(not_found)?;
        if self.addresses.get(found).is_some_and(|address| address.is_primary) {
            return Err(refuse(400, "InvalidParameter"));
        }
        let gone = self.addresses.remove(found).ip_address;
        self.attachments.iter_mut().for_each(|(_, vnic)| vnic.ipv6_addresses.retain(|address| *address != gone));
        Ok(())
    }

    /// Makes an attachment and its VNIC, with its own addresses.
    fn make(&mut self, wish: &AttachVnic) -> Result<Ocid, Refusal> {
        let details = &wish.create_vnic_details;
        let related = || refuse(400, "RelatedResourceNotAuthorizedOrNotFound");
        let subnet_id = details.subnet_id.clone().ok_or_else(|| refuse(400, "MissingParameter"))?;
        let subnet = self.subnets.get(&subnet_id).ok_or_else(related)?.clone();
        if details.assign_public_ip == Some(true) && subnet.prohibit_public_ip_on_vnic {
            return Err(refuse(400, "InvalidParameter"));
        }
        let compartment = self.instance(&wish.instance_id)?.0.compartment_id.clone();
        let (id, vnic_id) = (self.new_id("vnicattachment")?, self.new_id("vnic")?);
        let mut own = Vec::new();
        for (family, present) in
            [(Family::Ipv4, subnet.cidr_block.is_some()), (Family::Ipv6, details.assign_ipv6_ip == Some(true))]
        {
            if present {
                let own_wish = CreateAddress {
                    ip_address: details.private_ip.filter(|_| family == Family::Ipv4),
                    // "If not provided, one is chosen for you." Not the one that anybody would expect.
                    ipv6_subnet_cidr: subnet.ipv6_blocks().last().copied(),
                    ..CreateAddress::default()
                };
                let object = self.new_address((&subnet_id, &vnic_id), family, &own_wish)?;
                own.push(object.ip_address);
                if let Some(object) = self.addresses.last_mut() {
                    object.is_primary = true;
                }
            }
        }
        let attachment = VnicAttachment {
            id: id.clone(),
            compartment_id: compartment,
            instance_id: wish.instance_id.clone(),
            lifecycle_state: AttachmentState::Attaching,
            availability_domain: None,
            display_name: wish.display_name.clone(),
            subnet_id: Some(subnet_id.clone()),
            vnic_id: None,
            vlan_tag: None,
            nic_index: Some(wish.nic_index.unwrap_or(0)),
            time_created: None,
        };
        let vnic = Vnic {
            id: vnic_id,
            compartment_id: subnet.compartment_id.clone(),
            lifecycle_state: VnicState::Available,
            subnet_id: Some(subnet_id),
            availability_domain: None,
            display_name: details.display_name.clone(),
            mac_address: Some(MacAddr::local(self.number)),
            private_ip: own.iter().copied().find(std::net::IpAddr::is_ipv4),
            public_ip: None,
            ipv6_addresses: own.into_iter().filter(std::net::IpAddr::is_ipv6).collect(),
            is_primary: false,
            nsg_ids: details.nsg_ids.clone(),
            skip_source_dest_check: details.skip_source_dest_check.unwrap_or(false),
            hostname_label: details.hostname_label.clone(),
            route_table_id: None,
            freeform_tags: details.freeform_tags.clone(),
            defined_tags: details.defined_tags.clone(),
        };
        self.attachments.push((attachment, vnic));
        Ok(id)
    }

    fn new_address(
        &mut self,
        (subnet, vnic): (&Ocid, &Ocid),
        family: Family,
        wish: &CreateAddress,
    ) -> Result<IpObject, Refusal> {
        let block = self.block(subnet, family, wish)?;
        let taken = |address: std::net::IpAddr| self.addresses.iter().any(|other| other.network().contains(address));
        let address = match wish.ip_address {
            Some(address) if !block.contains(address) => return Err(refuse(400, "InvalidParameter")),
            Some(address) if taken(address) => return Err(refuse(409, "Conflict")),
            Some(address) => address,
            None => {
                let size = wish.cidr_prefix_length.map_or(1, |prefix| size(block, prefix));
                let candidates = (FIRST..1 << 16).map(|number| number.div_ceil(size) * size);
                let mut candidates = candidates.filter_map(|number| nth(block, number));
                candidates.find(|address| !taken(*address)).ok_or_else(|| refuse(400, "LimitExceeded"))?
            }
        };
        let kind = if family == Family::Ipv4 { "privateip" } else { "ipv6" };
        let object = IpObject {
            id: self.new_id(kind)?,
            ip_address: address,
            cidr_prefix_length: wish.cidr_prefix_length,
            vnic_id: Some(vnic.clone()),
            subnet_id: Some(subnet.clone()),
            is_primary: false,
            ip_state: Some(AddressState::Assigned),
            lifetime: Some(wish.lifetime.unwrap_or(Lifetime::Ephemeral)),
            display_name: wish.display_name.clone(),
            freeform_tags: wish.freeform_tags.clone(),
        };
        self.addresses.push(object.clone());
        Ok(object)
    }

    fn new_id(&mut self, kind: &str) -> Result<Ocid, Refusal> {
        self.number += 1;
        format!("ocid1.{kind}.oc1.iad.fake{:06}", self.number).parse().map_err(|_| refuse(500, "InternalServerError"))
    }

    fn tagged<T>(&self, id: &Ocid, value: T) -> Tagged<T> {
        Tagged { value, etag: Some(Etag(format!("v{}", self.versions.get(id).unwrap_or(&1)))) }
    }

    fn check_version(&self, id: &Ocid, if_match: Option<&Etag>) -> Result<(), Refusal> {
        let now = self.tagged(id, ()).etag;
        if if_match.is_some() && if_match != now.as_ref() { Err(refuse(412, "NoEtagMatch")) } else { Ok(()) }
    }
}

fn refuse(status: u16, code: &str) -> Refusal {
    Refusal { status, code: code.to_owned(), message: "says the cloud in memory".to_owned(), retry_after: None }
}

pub(super) fn not_found() -> Refusal {
    refuse(404, "NotAuthorizedOrNotFound")
}
