//! The VCN resolver: A and AAAA of `<node>.sandbox.internal`, and of the services themselves.

use std::net::IpAddr;

use simple_dns::rdata::{A, AAAA, RData};
use simple_dns::{CLASS, Packet, PacketFlag, QTYPE, RCODE, ResourceRecord, TYPE};

use crate::fabric::{SERVICES_V4, SERVICES_V6};
use crate::network::Inventory;

/// The domain of everything in the sandbox.
pub const DOMAIN: &str = "sandbox.internal";

/// Seconds that an answer may be kept.
const TTL: u32 = 5;

/// The services' own names, in the domain.
const SERVICES: [&str; 3] = ["resolver", "metadata", "time"];

/// Answers one message; `None` when it is not even a query.
pub(crate) fn answer(inventory: &Inventory, query: &[u8]) -> Option<Vec<u8>> {
    let query = Packet::parse(query).ok().filter(|query| !query.has_flags(PacketFlag::RESPONSE))?;
    let mut reply = Packet::new_reply(query.id());
    reply.set_flags(PacketFlag::AUTHORITATIVE_ANSWER | PacketFlag::RECURSION_AVAILABLE);
    if query.has_flags(PacketFlag::RECURSION_DESIRED) {
        reply.set_flags(PacketFlag::RECURSION_DESIRED);
    }
    let Some(question) = query.questions.first() else {
        *reply.rcode_mut() = RCODE::FormatError;
        return reply.build_bytes_vec_compressed().ok();
    };
    match addresses(inventory, &question.qname.to_string()) {
        None => *reply.rcode_mut() = RCODE::NameError,
        Some(addresses) => {
            for address in addresses {
                let (kind, data) = match address {
                    IpAddr::V4(address) => (TYPE::A, RData::A(A { address: address.into() })),
                    IpAddr::V6(address) => (TYPE::AAAA, RData::AAAA(AAAA { address: address.into() })),
                };
                if question.qtype == QTYPE::TYPE(kind) || question.qtype == QTYPE::ANY {
                    reply.answers.push(ResourceRecord::new(question.qname.clone(), CLASS::IN, TTL, data));
                }
            }
        }
    }
    reply.questions.push(question.clone());
    reply.build_bytes_vec_compressed().ok()
}

/// The addresses of a name; `None` when there is no such name.
fn addresses(inventory: &Inventory, name: &str) -> Option<Vec<IpAddr>> {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let host = name.strip_suffix(DOMAIN)?.strip_suffix('.')?;
    if SERVICES.contains(&host) {
        return Some(vec![IpAddr::V4(SERVICES_V4), IpAddr::V6(SERVICES_V6)]);
    }
    let instances = inventory.lock();
    Some(instances.get(host)?.primary()?.address.iter().map(|(_, address)| *address).collect())
}
