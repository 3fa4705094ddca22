//! The readers of the kernel's answers, by name, for the fuzz targets (feature `fuzzing`; no program turns it on).
//!
//! A reader may refuse what it gets, but never panics, and what it makes of it can be written down and asked for again.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::Emitable;

use crate::conntrack;
use crate::nft::{TableFamily, observed};
use crate::routing::address::Address;
use crate::routing::link::Link;
use crate::routing::neighbour::Neighbour;
use crate::routing::route::Route;
use crate::routing::rule::Rule;
use crate::routing::setting::Setting;
use crate::wire::transport;

/// A reader under test.
pub type Reader = fn(&[u8]);

/// Every reader, by the name of what it reads.
pub const READERS: &[(&str, Reader)] = &[
    ("datagram", transport::read_datagram),
    ("link", link),
    ("address", address),
    ("route", route),
    ("rule", rule),
    ("neighbour", neighbour),
    ("setting", |payload| drop(Setting::decode(payload))),
    ("conntrack", connection),
    ("nft_table", |payload| drop(observed::table(payload))),
    ("nft_chain", |payload| drop(observed::chain(payload, TableFamily::Inet, "vcn-native"))),
    ("nft_rule", |payload| drop(observed::rule(payload, "vcn-native"))),
];

fn link(payload: &[u8]) {
    if let Ok(Some(link)) = Link::decode(payload) {
        let _ = format!("{link:?}");
    }
}

fn address(payload: &[u8]) {
    if let Ok(Some(address)) = Address::decode(payload) {
        let _ = format!("{address:?}");
    }
}

fn route(payload: &[u8]) {
    if let Ok(Some(route)) = Route::decode(payload) {
        let _ = (route.to_string(), emitted(&route.message()));
    }
}

fn rule(payload: &[u8]) {
    if let Ok(Some(rule)) = Rule::decode(payload) {
        let _ = (rule.to_string(), emitted(&rule.message()));
    }
}

fn neighbour(payload: &[u8]) {
    if let Ok(Some(neighbour)) = Neighbour::decode(payload) {
        let _ = (neighbour.to_string(), emitted(&neighbour.message()));
    }
}

fn connection(payload: &[u8]) {
    for address in [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
        if let Ok(Some(key)) = conntrack::key_if_of(payload, address) {
            let _ = emitted(&key.as_slice());
        }
    }
}

fn emitted(message: &impl Emitable) -> Vec<u8> {
    let mut bytes = vec![0; message.buffer_len()];
    message.emit(&mut bytes);
    bytes
}
