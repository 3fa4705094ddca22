//! Brings the state in sync with the VCN. A VNIC that was attached or detached without the API (when a node was built,
//! by a test) gets or loses its records.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use ipnetwork::IpNetwork;
use serde_json::{Map, Value};
use vcn::{Family, Ocid};

use super::state::{AddressRecord, Attachment, AttachmentState, State, VnicRecord};
use crate::Vcn;
use crate::network::Instance;
use crate::network::Vnic;

/// On return the state has a record of every VNIC and address there is, and none of others.
pub(super) fn sync(state: &mut State, vcn: &Vcn) {
    let changes = vcn.changes();
    if state.synced == Some(changes) {
        return;
    }
    let instances = vcn.inventory().lock();
    let present = || instances.values().flat_map(|instance| instance.vnics.iter().map(move |vnic| (instance, vnic)));
    let mut index = Index::of(state);
    for (instance, vnic) in present() {
        record(state, &mut index, instance, vnic);
    }
    let ids: BTreeSet<&Ocid> = present().map(|(_, vnic)| &vnic.id).collect();
    for attachment in state.attachments.values_mut() {
        if matches!(attachment.state, AttachmentState::Attached | AttachmentState::Detaching)
            && !ids.contains(&attachment.vnic.id)
        {
            attachment.state = AttachmentState::Detached;
            attachment.version += 1;
        }
    }
    state.vnics.retain(|id, _| ids.contains(id));
    state.addresses.retain(|_, address| ids.contains(&address.vnic));
    state.synced = Some(changes);
}

/// The state's records by VNIC: a VCN may have ten thousand of them.
struct Index {
    attachments: BTreeMap<Ocid, String>,
    addresses: BTreeMap<Ocid, Vec<(String, IpNetwork)>>,
}

impl Index {
    fn of(state: &State) -> Self {
        let present = state.attachments.iter().filter(|(_, attachment)| attachment.state != AttachmentState::Detached);
        let mut addresses: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (id, address) in &state.addresses {
            addresses.entry(address.vnic.clone()).or_default().push((id.clone(), address.network));
        }
        let attachments = present.map(|(id, attachment)| (attachment.vnic.id.clone(), id.clone())).collect();
        Self { attachments, addresses }
    }
}

fn record(state: &mut State, index: &mut Index, instance: &Instance, vnic: &Vnic) {
    let now = SystemTime::now();
    let id = index.attachments.remove(&vnic.id).unwrap_or_else(|| state.new_id("vnicattachment"));
    let attachment = state.attachments.entry(id).or_insert_with(|| Attachment {
        node: instance.name.clone(),
        instance: instance.id.clone(),
        compartment: instance.compartment.clone(),
        state: AttachmentState::Attached,
        vnic: vnic.clone(),
        display_name: None,
        fields: Map::new(),
        created: now,
        version: 1,
    });
    attachment.vnic = vnic.clone();
    let fields = attachment.fields.clone();
    let record = state.vnics.entry(vnic.id.clone()).or_insert_with(|| VnicRecord {
        node: instance.name.clone(),
        vnic: vnic.clone(),
        fields,
        created: now,
        version: 1,
    });
    record.vnic = vnic.clone();
    let mut known = index.addresses.remove(&vnic.id).unwrap_or_default();
    for (network, primary) in networks(vnic) {
        if let Some(place) = known.iter().position(|(_, own)| *own == network) {
            known.remove(place);
            continue;
        }
        let id = state.new_address_id(Family::of(network.ip()));
        let mut fields = Map::new();
        fields.insert("displayName".to_owned(), Value::from(format!("ip-{}", network.ip())));
        let record = AddressRecord {
            vnic: vnic.id.clone(),
            node: instance.name.clone(),
            network,
            primary,
            fields,
            created: now,
        };
        state.addresses.insert(id, record);
    }
    for (gone, _) in known {
        state.addresses.remove(&gone);
    }
}

/// All networks of a VNIC, and whether each is its own address.
fn networks(vnic: &Vnic) -> Vec<(IpNetwork, bool)> {
    let own = vnic.address.iter().map(|(_, address)| (IpNetwork::from(*address), true));
    let secondary =
        vnic.secondary.iter().flat_map(|(_, all)| all.iter().map(|address| (IpNetwork::from(*address), false)));
    let blocks = vnic.blocks.iter().map(|(_, block)| (*block, false));
    own.chain(secondary).chain(blocks).collect()
}
