//! Brings the books up to date with the VCN: what was plugged or unplugged otherwise (when a node was built, by a test
//! behind the API's back) gets or loses its records.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Instant, SystemTime};

use ipnetwork::IpNetwork;
use serde_json::{Map, Value};
use vcn::{Family, Ocid};

use super::books::{AddressRecord, Attachment, Books, State, VnicRecord};
use crate::Vcn;
use crate::vnic::Vnic;

/// On return the books have a record of every VNIC and address there is, and none of others.
pub(super) fn follow(books: &mut Books, vcn: &Vcn) {
    let changes = vcn.changes();
    if books.followed == Some(changes) {
        return;
    }
    let present: Vec<(String, Ocid, Vnic)> = {
        let instances = vcn.inventory().lock();
        let all = instances.values().flat_map(|instance| {
            instance.vnics.iter().map(|vnic| (instance.name.clone(), instance.id.clone(), vnic.clone()))
        });
        all.collect()
    };
    let mut index = Index::of(books);
    for (node, instance, vnic) in &present {
        see(books, &mut index, (node, instance), vnic);
    }
    let ids: BTreeSet<&Ocid> = present.iter().map(|(_, _, vnic)| &vnic.id).collect();
    for attachment in books.attachments.values_mut() {
        if matches!(attachment.state, State::Attached | State::Detaching) && !ids.contains(&attachment.vnic.id) {
            attachment.state = State::Detached;
            attachment.version += 1;
            attachment.ended = Some(Instant::now());
        }
    }
    books.vnics.retain(|id, _| ids.contains(id));
    books.addresses.retain(|_, address| ids.contains(&address.vnic));
    books.followed = Some(changes);
}

/// What the books have, by VNIC: a VCN may have ten thousand of them.
struct Index {
    attachments: BTreeMap<Ocid, String>,
    addresses: BTreeMap<Ocid, Vec<(String, IpNetwork)>>,
}

impl Index {
    fn of(books: &Books) -> Self {
        let present = books.attachments.iter().filter(|(_, attachment)| attachment.state != State::Detached);
        let mut addresses: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (id, address) in &books.addresses {
            addresses.entry(address.vnic.clone()).or_default().push((id.clone(), address.network));
        }
        let attachments = present.map(|(id, attachment)| (attachment.vnic.id.clone(), id.clone())).collect();
        Self { attachments, addresses }
    }
}

fn see(books: &mut Books, index: &mut Index, (node, instance): (&str, &Ocid), vnic: &Vnic) {
    let now = SystemTime::now();
    let id = index.attachments.remove(&vnic.id).unwrap_or_else(|| books.new_id("vnicattachment"));
    let attachment = books.attachments.entry(id).or_insert_with(|| Attachment {
        node: node.to_owned(),
        instance: instance.clone(),
        state: State::Attached,
        vnic: vnic.clone(),
        display_name: None,
        fields: Map::new(),
        created: now,
        version: 1,
        ended: None,
    });
    attachment.vnic = vnic.clone();
    let fields = attachment.fields.clone();
    let record = books.vnics.entry(vnic.id.clone()).or_insert_with(|| VnicRecord {
        node: node.to_owned(),
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
        let id = books.new_address_id(Family::of(network.ip()));
        let mut fields = Map::new();
        fields.insert("displayName".to_owned(), Value::from(format!("ip-{}", network.ip())));
        let record =
            AddressRecord { vnic: vnic.id.clone(), node: node.to_owned(), network, primary, fields, created: now };
        books.addresses.insert(id, record);
    }
    for (gone, _) in known {
        books.addresses.remove(&gone);
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
