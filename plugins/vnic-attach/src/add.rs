//! ADD: every interface that the pod requests, or none. What can be refused is refused before anything is made.

use attachment::{Added, Node, Report, failure};
use cni::{AddRequest, AddResult, AttachmentKey, Error, ErrorCode, Interface, Ip, Success};
use datapath::pod::{self, ExtraNetwork};
use ipnetwork::IpNetwork;
use vcn::{Family, IfName};

use crate::attach::InterfaceBuilder;
use crate::conf::Conf;
use crate::offer::{self, VnicGrant};
use crate::requested::InterfaceRequest;
use crate::{chained, is_delegate, key_of};

pub(crate) fn add(
    request: &AddRequest<Conf>,
    requested: Vec<InterfaceRequest>,
    report: &mut Report,
) -> Result<AddResult, Error> {
    let node = Node::open().map_err(|error| failure::of_ipam(&error))?;
    let pools = node.pools().map_err(|error| failure::of_ipam(&error))?;
    let namespace = request.args.pod_namespace.as_deref();
    let grants: Vec<VnicGrant<'_>> =
        requested.into_iter().map(|one| offer::grant(&pools, one, namespace)).collect::<Result<_, _>>()?;
    let mut places = attachment::enter(&request.netns)?;
    let used = pod::used_names(&mut places).map_err(|error| failure::of_datapath(&error))?;
    let before = before(request, &node, report)?;
    let used = used.into_iter().filter(|name| !before.iter().any(|key| key.ifname == *name)).collect();
    let names = names(&grants, used)?;
    report.mark("grant");

    let mut builder = InterfaceBuilder { request, node: &node, pools: &pools, places: &mut places, report };
    let mut created: Vec<Added<ExtraNetwork>> = Vec::new();
    for (one, name) in grants.iter().zip(names) {
        match builder.build(one, name) {
            Ok(interface) => created.push(interface),
            Err(error) => {
                // What an earlier ADD has created and a running pod uses stays.
                let fresh = created.iter().rev().filter(|it| !it.is_repeated);
                return Err(fresh.fold(error, |error, it| builder.undo(it, error)));
            }
        }
    }
    Ok(answer(request, &created))
}

/// The interfaces that an earlier ADD of this attachment created.
fn before(request: &AddRequest<Conf>, node: &Node, report: &mut Report) -> Result<Vec<AttachmentKey>, Error> {
    match is_delegate(&request.config) {
        true => Ok(vec![key_of(&request.key.container_id, request.key.ifname.clone())?]),
        false => chained(node, &request.config.name, &request.key.container_id, report),
    }
}

/// The interfaces' names, in the order of the request; none of them is `used`.
fn names(grants: &[VnicGrant<'_>], mut used: Vec<IfName>) -> Result<Vec<IfName>, Error> {
    let requested: Vec<Option<IfName>> = grants.iter().map(|one| one.requested.interface.clone()).collect();
    if let Some(taken) = requested.iter().flatten().find(|name| used.contains(name)) {
        let msg = format!("the pod has an interface {taken} already; request another name");
        return Err(Error::new(ErrorCode::TRY_AGAIN_LATER, msg));
    }
    used.extend(requested.iter().flatten().cloned());
    let mut next = 0_u32;
    let name = |requested_name: Option<IfName>| match requested_name {
        Some(name) => Ok(name),
        None => loop {
            next += 1;
            let name = IfName::new(format!("net{next}"));
            let name = name.map_err(|error| Error::new(ErrorCode::TRY_AGAIN_LATER, error.to_string()))?;
            if !used.contains(&name) {
                break Ok(name);
            }
        },
    };
    requested.into_iter().map(name).collect()
}

/// What the chain made so far and these interfaces, in this order: runtimes take the pod's address from the first.
fn answer(request: &AddRequest<Conf>, created: &[Added<ExtraNetwork>]) -> AddResult {
    let sandbox = request.netns.path().display().to_string();
    match request.config.prev_result.clone() {
        Some(mut result) => {
            for Added { network, .. } in created {
                let mut at = 0;
                for interface in interfaces(network, &sandbox) {
                    at = result.add_interface(&interface);
                }
                ips(network, at).for_each(|ip| result.add_ip(ip));
            }
            result.into()
        }
        None => {
            let mut result = Success { dns: request.config.dns.clone(), ..Success::default() };
            for Added { network, .. } in created {
                result.interfaces.extend(interfaces(network, &sandbox));
                result.ips.extend(ips(network, result.interfaces.len().saturating_sub(1)));
            }
            result.into()
        }
    }
}

/// The interfaces of one, that in the pod last.
fn interfaces(network: &ExtraNetwork, sandbox: &str) -> Vec<Interface> {
    let (ends, mtu) = (&network.pod.ends, Some(network.pod.mtu));
    let mac = Some(network.device.as_ref().map_or(ends.pod_mac, |device| device.mac));
    let inside = Interface { name: ends.pod.to_string(), mac, mtu, sandbox: sandbox.to_owned() };
    let host = || Interface { name: ends.host.to_string(), mac: Some(ends.host_mac), mtu, sandbox: String::new() };
    network.device.is_none().then(host).into_iter().chain([inside]).collect()
}

fn ips(network: &ExtraNetwork, interface: usize) -> impl Iterator<Item = Ip> {
    network.pod.addresses.iter().map(move |held| {
        let family = Family::of(held.address);
        let (gateway, prefix) = match &network.device {
            Some(device) => (device.routers.of(family).copied(), network.subnets.of(family).map(IpNetwork::prefix)),
            None => (Some(pod::gateway(family)), None),
        };
        let address = prefix.and_then(|prefix| IpNetwork::new(held.address, prefix).ok());
        Ip { address: address.unwrap_or_else(|| held.address.into()), gateway, interface: Some(interface) }
    })
}
