//! CHECK: each interface that the pod asks for is on record, and the plan from what is observed to what ADD made is empty.

use attachment::{Node, Report, code, failure};
use cni::{CheckRequest, Error};
use datapath::{Change, Place, Step, plan, pod};
use ipam::Allocation;

use crate::conf::Conf;
use crate::requested::InterfaceRequest;
use crate::{chained, is_delegate, key_of};

pub(crate) fn check(
    request: &CheckRequest<Conf>,
    requested: &[InterfaceRequest],
    report: &mut Report,
) -> Result<(), Error> {
    let wrap = |error: ipam::Error| failure::of_ipam(&error);
    let mut places = attachment::enter(&request.netns)?;
    let node = Node::open().map_err(wrap)?;
    let pools = node.pools().map_err(wrap)?;
    let keys = match is_delegate(&request.config) {
        true => vec![key_of(&request.key.container_id, request.key.ifname.clone())?],
        false => chained(&node, &request.config.name, &request.key.container_id, report)?,
    };
    let mut held: Vec<Allocation> = Vec::new();
    for key in &keys {
        held.extend(node.store.find(key).map_err(wrap)?);
    }
    let mut differences = Vec::new();
    for one in requested {
        let is_it = |held: &Allocation| {
            let name = one.interface.as_ref().is_none_or(|name| *name == held.key.ifname);
            name && held.attached.as_ref().is_some_and(|attached| attached.vnic == one.vnic)
        };
        let Some(allocation) = held.iter().find(|held| is_it(held)) else {
            let msg = format!("the pod has no interface on VNIC {}; delete and add the pod", one.vnic);
            return Err(Error::new(code::NOT_ALLOCATED, msg));
        };
        report.addresses(&allocation.addresses);
        let gone = |held: &&ipam::AssignedAddress| !pools.vnics.iter().any(|vnic| vnic.vnic_id == held.vnic_id);
        differences.extend(allocation.addresses.iter().filter(gone).map(|held| {
            format!("{} is on VNIC {}, which is not among this node's any more", held.address, held.vnic_id)
        }));
        let Some(mut network) = attachment::network_of(allocation, Some(&pools)) else { continue };
        let during = |error: datapath::Error| failure::of_datapath(&error);
        network.taken = pod::taken_routes(&network, &mut places).map_err(during)?;
        let observed = pod::observe_extra(&network, &mut places).map_err(during)?;
        // What others added in the pod is their business.
        let added = |step: &&Step| step.place == Place::Pod && matches!(step.change, Change::Delete(_));
        let steps = plan(&network.desired(), &observed);
        differences.extend(steps.iter().filter(|step| !added(step)).map(ToString::to_string));
    }
    if differences.is_empty() {
        return Ok(());
    }
    let msg = format!("{} is not as ADD made it, in {} respect(s); see the details", request.key, differences.len());
    Err(Error::new(code::CHECK_DIFFERS, msg).with_details(differences.join("; ")))
}
