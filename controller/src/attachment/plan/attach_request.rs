//! The requested VNIC, and its desired state once it is attached.

use std::net::IpAddr;

use oci::{AttachVnic, CreateVnic, FreeformTags, Subnet};

use super::Case;
use crate::attachment::mark::Mark;
use crate::attachment::step::Action;

/// The attach request. Its token is the same in every process while OCI lists the same lost VNICs of the object, or none.
pub(super) fn attach(case: &Case<'_>, mark: &Mark, subnet: &Subnet) -> Action {
    let spec = &case.object.spec;
    let vnic = &spec.vnic;
    let has_ipv6 = !subnet.ipv6_blocks().is_empty();
    let token = mark.token("attach", &case.uid, &case.records());
    let request = AttachVnic {
        instance_id: spec.instance_id.clone(),
        create_vnic_details: CreateVnic {
            subnet_id: Some(vnic.subnet_id.clone()),
            display_name: Some(display_name(case)),
            // Unless the spec requests one, the VNIC has no public address.
            assign_public_ip: Some(vnic.assign_public_ip),
            assign_ipv6_ip: has_ipv6.then_some(true),
            nsg_ids: vnic.nsg_ids.clone(),
            private_ip: vnic.private_ip.map(IpAddr::V4),
            skip_source_dest_check: Some(vnic.skip_source_dest_check),
            freeform_tags: tags(case, mark),
            ..CreateVnic::default()
        },
        display_name: Some(mark.attachment_name(&case.uid)),
        nic_index: vnic.nic_index,
    };
    Action::Attach(Box::new(request), token)
}

pub(super) fn display_name(case: &Case<'_>) -> String {
    case.object.spec.vnic.display_name.clone().unwrap_or_else(|| case.name.clone())
}

pub(super) fn tags(case: &Case<'_>, mark: &Mark) -> FreeformTags {
    mark.tags(&case.uid, &case.name, &case.object.spec.vnic.freeform_tags)
}
