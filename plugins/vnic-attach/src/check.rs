//! CHECK: each interface that the pod requests is on record, and the plan from what is observed to what ADD made is empty.

use attachment::{Node, Report, code, failure};
use cni::{CheckRequest, Error};
use datapath::pod;
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
        differences.extend(attachment::vanished(allocation, &pools));
        let Some(mut network) = attachment::network_of(allocation, Some(&pools)) else { continue };
        let during = |error: datapath::Error| failure::of_datapath(&error);
        network.taken = pod::taken_routes(&network, &mut places).map_err(during)?;
        let observed = pod::observe_extra(&network, &mut places).map_err(during)?;
        differences.extend(attachment::drifted(&network.desired(), &observed));
    }
    attachment::in_sync(&request.key, &differences)
}
