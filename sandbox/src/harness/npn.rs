//! The NativePodNetwork object that OKE's control plane would create for a node.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Map, Value, json};
use vcn::{Family, PerFamily};

use crate::error::Result;
use crate::network::Vcn;
use crate::network::Vnic;

/// OKE's limit of `spec.maxPodCount`.
const MAX_PODS: usize = 110;

/// The two shapes that the object's status comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NpnShape {
    /// `addresses`, `routerIp`, `hostAddress`: IPv4 only, of clusters whose spec names no IP families.
    Legacy,
    /// `podAddresses`, `routerIps`, `hostAddresses`: `{v4, v6}` each.
    PerFamily,
}

impl Vcn {
    /// The object for a node: its secondary VNICs that have secondary addresses. The first secondary address of a VNIC
    /// is its `hostAddress`, the others are for pods.
    pub fn native_pod_network(&self, node: &str, shape: NpnShape) -> Result<Value> {
        let node = self.node(node)?;
        let vnics = node.vnics();
        let (mut families, mut subnets) = (BTreeSet::new(), BTreeSet::new());
        let (mut entries, mut pods) = (Vec::new(), 0);
        for vnic in vnics.iter().filter(|vnic| !vnic.primary) {
            let Some(addresses) = PodAddresses::of(vnic) else { continue };
            pods += addresses.count();
            families.extend(addresses.host.iter().map(|(family, _)| family.to_string()));
            subnets.insert(vnic.subnet.id.clone());
            entries.push(match shape {
                NpnShape::Legacy => legacy(vnic, &addresses),
                NpnShape::PerFamily => per_family(vnic, &addresses),
            });
        }
        let mut spec = json!({ "id": node.id(), "maxPodCount": pods.min(MAX_PODS), "podSubnetIds": subnets });
        if let (NpnShape::PerFamily, Some(spec)) = (shape, spec.as_object_mut()) {
            spec.insert("ipFamilies".to_owned(), json!(families));
        }
        Ok(json!({
            "apiVersion": "oci.oraclecloud.com/v1beta1",
            "kind": "NativePodNetwork",
            "metadata": { "name": node.id().unique_id() },
            "spec": spec,
            "status": { "state": "SUCCESS", "reason": "COMPLETED", "vnics": entries },
        }))
    }
}

/// A VNIC's addresses for the host and for pods.
struct PodAddresses {
    host: PerFamily<IpAddr>,
    pods: PerFamily<Vec<IpAddr>>,
}

impl PodAddresses {
    fn of(vnic: &Vnic) -> Option<Self> {
        let mut found = Self { host: PerFamily::default(), pods: PerFamily::default() };
        for family in Family::ALL {
            if let Some((first, others)) = vnic.secondary.of(family).and_then(|all| all.split_first()) {
                *found.host.slot(family) = Some(*first);
                *found.pods.slot(family) = Some(others.to_vec());
            }
        }
        (!found.pods.is_empty()).then_some(found)
    }

    fn count(&self) -> usize {
        self.pods.iter().map(|(_, addresses)| addresses.len()).max().unwrap_or(0)
    }
}

fn legacy(vnic: &Vnic, addresses: &PodAddresses) -> Value {
    json!({
        "vnicId": vnic.id,
        "macAddress": vnic.mac,
        "routerIp": vnic.subnet.router_v4(),
        "subnetCidr": vnic.subnet.ipv4(),
        "hostAddress": addresses.host.ipv4,
        "addresses": addresses.pods.ipv4.as_deref().unwrap_or_default(),
    })
}

fn per_family(vnic: &Vnic, addresses: &PodAddresses) -> Value {
    let routers = PerFamily { ipv4: vnic.subnet.router(Family::Ipv4), ipv6: vnic.subnet.router(Family::Ipv6) };
    let pods: Vec<_> = (0..addresses.count())
        .map(|number| {
            let of = |family| addresses.pods.of(family).and_then(|all| all.get(number).copied());
            pair(&PerFamily { ipv4: of(Family::Ipv4), ipv6: of(Family::Ipv6) })
        })
        .collect();
    json!({
        "vnicId": vnic.id,
        "macAddress": vnic.mac,
        "routerIps": [pair(&routers)],
        "subnetCidrs": [pair(&vnic.subnet.blocks)],
        "hostAddresses": [pair(&addresses.host)],
        "podAddresses": pods,
    })
}

/// `{v4, v6}`, without what is absent.
fn pair<T: ToString>(values: &PerFamily<T>) -> Value {
    let mut fields = Map::new();
    for (family, value) in values.iter() {
        let name = match family {
            Family::Ipv4 => "v4",
            Family::Ipv6 => "v6",
        };
        fields.insert(name.to_owned(), value.to_string().into());
    }
    fields.into()
}
