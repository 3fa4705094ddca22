//! What a configuration or a runtime may request of other plugins and not of this one: chosen addresses or a chosen MAC, another
//! plugin for the addresses. Ignoring it in silence would give the pod something else than was requested.

use cni::{AddRequest, Error, RequestedKind, requested_fields};

use crate::conf::Conf;

/// Refuses an ADD that requests what cannot be had here.
pub(crate) fn refuse(request: &AddRequest<Conf>) -> Result<(), Error> {
    let mut fields = requested_fields(&request.args, &request.config).into_iter();
    let refused = fields.find_map(|field| {
        let next = match field.kind {
            RequestedKind::SharedMac if request.conf.tuning => return None,
            RequestedKind::AddressPlugin => "addresses come from the VNICs: leave ipam out",
            RequestedKind::Addresses => "a pod gets any free address of its node: leave it out",
            RequestedKind::Mac => "the MAC follows from the pod: chain the tuning plugin, or leave it out",
            RequestedKind::SharedMac => {
                "the MAC follows from the pod: leave it out, or chain the tuning plugin and set \"tuning\": true in the entry \
                 of vcn-native, as the installer does"
            }
        };
        Some(field.refused("vcn-native", next))
    });
    refused.map_or(Ok(()), Err)
}
