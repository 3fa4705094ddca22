//! `vnic-attach`: gives a pod extra interfaces on VNICs that it requests by name.
//!
//! ```text
//!   chained    annotation of the pod ─┐                  ┌─ Shared: a routed veth, an address of the VNIC
//!                                     ├─▶ may it? ─▶ ADD ┤
//!   delegate   "vnic" of the NAD ─────┘   (pools.json)   └─ Exclusive: the VNIC's own link, on bare metal a VLAN link
//! ```
//!
//! A pod without a request passes through: the result of the chain so far is the answer. A pod that requests what it cannot
//! have does not start (code 11). Who may have what is in the agent's file alone; a configuration, which users may write, names
//! VNICs and nothing else.

mod add;
mod attach;
mod check;
mod conf;
mod offer;
pub mod requested;

pub use conf::Conf;

use attachment::{FollowUp, Node, Program, Report, failure};
use cni::{
    AddRequest, AddResult, AttachmentKey, CheckRequest, Config, ContainerId, DelRequest, Error, ErrorCode, GcRequest,
    NetworkName, Plugin, Refusal, StatusRequest,
};
use ipam::Allocation;
use vcn::{IfName, VNIC_ATTACH_NETWORK};

const PROGRAM: Program = Program { name: "vnic-attach", version: env!("CARGO_PKG_VERSION") };

/// The plugin that gives a pod extra interfaces.
#[derive(Clone, Copy, Debug)]
pub struct VnicAttach;

impl Plugin for VnicAttach {
    type Conf = Conf;

    // With one of `vcn::PLUGIN_MARKS`, by which the installer recognizes the binary.
    const ABOUT: &'static str =
        concat!("vnic-attach ", env!("CARGO_PKG_VERSION"), ": gives pods extra interfaces on VNICs that they request");

    fn refused(&self, refusal: &Refusal<'_>) {
        Report::of_refusal(PROGRAM, refusal).send(Some(refusal.error), None);
    }

    fn add(&self, request: &AddRequest<Conf>) -> Result<AddResult, Error> {
        let requested = requested::by(&request.conf, &request.args, &request.config, &request.key.ifname);
        if requested.as_ref().is_ok_and(Vec::is_empty) {
            return passed(&request.config);
        }
        let report = Report::of_attachment(PROGRAM, "ADD", &request.key, &request.args);
        report.of_run(Some(FollowUp::Announce), |report| add::add(request, requested?, report))
    }

    fn del(&self, request: &DelRequest<Conf>) -> Result<(), Error> {
        let mut report = Report::of_attachment(PROGRAM, "DEL", &request.key, &request.args);
        let node = Node::open().map_err(|error| failure::of_ipam(&error));
        let answer = node.and_then(|node| {
            let keys = match is_delegate(&request.config) {
                true => vec![key_of(&request.key.container_id, request.key.ifname.clone())?],
                false => chained(&node, &request.config.name, &request.key.container_id, &mut report)?,
            };
            if keys.is_empty() {
                return Ok(None);
            }
            // One that resists must not keep the others.
            let outcomes = keys.iter().map(|key| attachment::del(key, &node, &mut report));
            let failed = outcomes.filter_map(Result::err).reduce(|first, error| first.with_details(error));
            failed.map_or(Ok(Some(())), Err)
        });
        // Of a pod that had nothing there is nothing to tell.
        if !matches!(answer, Ok(None)) {
            report.send(answer.as_ref().err(), Some(FollowUp::Forget));
        }
        answer.map(|_| ())
    }

    fn check(&self, request: &CheckRequest<Conf>) -> Result<(), Error> {
        let requested = requested::by(&request.conf, &request.args, &request.config, &request.key.ifname)?;
        if requested.is_empty() {
            return Ok(());
        }
        let report = Report::of_attachment(PROGRAM, "CHECK", &request.key, &request.args);
        report.of_run(None, |report| check::check(request, &requested, report))
    }

    /// A no makes the node not ready, and most of its pods want no extra interface: there is none.
    fn status(&self, _request: &StatusRequest<Conf>) -> Result<(), Error> {
        Ok(())
    }

    fn gc(&self, request: &GcRequest<Conf>) -> Result<(), Error> {
        let report = Report::of_network(PROGRAM, "GC", &request.config.name);
        let (network, is_chained) = (&request.config.name, !is_delegate(&request.config));
        let valid = request.valid.as_ref();
        // The chain lists pods by their own interfaces, not by our names for the extra ones.
        let lives = |id: &ContainerId| valid.is_none_or(|valid| valid.iter().any(|key| key.container_id == *id));
        let dead = |held: &Allocation| {
            let is_its = held.attached.as_ref().map_or(is_chained, |attached| attached.network == *network);
            held.key.network.as_str() == VNIC_ATTACH_NETWORK && is_its && !lives(&held.key.container_id)
        };
        report.of_run(Some(FollowUp::Forget), |report| {
            let node = Node::open().map_err(|error| failure::of_ipam(&error))?;
            attachment::gc(&node, dead, report)
        })
    }
}

/// The result of the chain so far, as it came.
fn passed(config: &Config) -> Result<AddResult, Error> {
    let previous = config.prev_result.clone().map(AddResult::Passed);
    previous.ok_or_else(|| {
        let msg = "vnic-attach comes after another plugin of a chain (there is no prevResult), or is a delegate whose \
                   configuration has a \"vnic\"";
        Error::new(ErrorCode::INVALID_CONFIG, msg)
    })
}

/// Whether the configuration is of one interface, as a NetworkAttachmentDefinition's.
fn is_delegate(config: &Config) -> bool {
    config.raw().get("vnic").is_some_and(|vnic| !vnic.is_null())
}

/// The key of an interface of a pod.
fn key_of(container_id: &ContainerId, ifname: IfName) -> Result<AttachmentKey, Error> {
    let network = NetworkName::new(VNIC_ATTACH_NETWORK)
        .map_err(|error| Error::new(ErrorCode::INVALID_ENVIRONMENT, error.to_string()))?;
    Ok(AttachmentKey { network, container_id: container_id.clone(), ifname })
}

/// The interfaces that a pod got by this chain. Those of other networks are their own to end.
fn chained(
    node: &Node,
    network: &NetworkName,
    container_id: &ContainerId,
    report: &mut Report,
) -> Result<Vec<AttachmentKey>, Error> {
    let read = || node.store.of_container(VNIC_ATTACH_NETWORK, container_id);
    let held = match read() {
        Err(ipam::Error::Damaged { .. }) => {
            node.rebuild_record(node.pools().ok().as_ref(), None, report)?;
            read()
        }
        held => held,
    };
    let held = held.map_err(|error| failure::of_ipam(&error))?;
    let is_its = |held: &Allocation| held.attached.as_ref().is_none_or(|attached| attached.network == *network);
    Ok(held.into_iter().filter(is_its).map(|held| held.key).collect())
}
