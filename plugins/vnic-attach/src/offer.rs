//! Whether a pod may have what it requests: the agent's file alone says so.

use std::net::IpAddr;

use cni::{Error, ErrorCode};
use ipam::{AttachOffer, Pools, VnicPool};
use vcn::{AttachMode, Family};

use crate::requested::InterfaceRequest;

/// A VNIC that a pod may use, with the pod's request for it.
pub(crate) struct VnicGrant<'a> {
    pub(crate) vnic: &'a VnicPool,
    pub(crate) offer: &'a AttachOffer,
    pub(crate) requested: InterfaceRequest,
}

/// The VNIC that is requested, if the pod's namespace may use it and it is there to be used.
///
/// # Errors
/// Code 11 with the reason: it may pass when the VNIC comes, or is changed.
pub(crate) fn grant<'a>(
    pools: &'a Pools,
    requested: InterfaceRequest,
    namespace: Option<&str>,
) -> Result<VnicGrant<'a>, Error> {
    let name = &requested.vnic;
    let refused = |why: String| Err(Error::new(ErrorCode::TRY_AGAIN_LATER, why));
    // Who may not use it need not know more of it, but a wrong name is the commonest mistake.
    let Some((vnic, offer)) = pools.named(name) else {
        return refused(format!(
            "this node has no VNIC named {name}; see the VnicAttachments of the node, or wait until it is attached"
        ));
    };
    let Some(namespace) = namespace else {
        return refused(format!(
            "the runtime does not tell the pod's namespace (K8S_POD_NAMESPACE in CNI_ARGS), so VNIC {name} cannot be given"
        ));
    };
    if !offer.allowed_namespaces.iter().any(|allowed| allowed == namespace) {
        return refused(format!(
            "namespace {namespace} is not allowed to use VNIC {name}; add it to allowedNamespaces of its VnicAttachment or \
             VnicProfile"
        ));
    }
    if offer.is_leaving {
        return refused(format!("VNIC {name} is being removed or replaced; the runtime tries again"));
    }
    if vnic.families.is_empty() {
        return refused(format!("VNIC {name} has no addresses for pods yet; the runtime tries again"));
    }
    if let Some(ip) = requested.ips.iter().find(|ip| !gives(vnic, offer, **ip)) {
        return refused(format!("{ip} is not an address that VNIC {name} has for pods"));
    }
    Ok(VnicGrant { vnic, offer, requested })
}

/// Whether a VNIC can give an address: an Exclusive one gives its own alone.
fn gives(vnic: &VnicPool, offer: &AttachOffer, ip: IpAddr) -> bool {
    let pool = vnic.families.of(Family::of(ip));
    pool.is_some_and(|pool| match offer.mode {
        AttachMode::Shared => pool.contains(ip),
        AttachMode::Exclusive => pool.candidates().next() == Some(ip),
    })
}
