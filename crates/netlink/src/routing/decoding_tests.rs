//! Answers that no kernel would give must be refused, never panic; requests read as answers must mean the same.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;
use netlink_packet_core::Emitable;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Strategy, any, prop_assert_eq, proptest};
use vcn::{Family, IfName, MacAddr, Mark, Mtu, Priority, TableId};

use crate::conntrack::key_if_of_any;
use crate::ethtool::decode_features;
use crate::nft::chain::ListedChain;
use crate::nft::observed::rule as rule_of_a_table;
use crate::routing::monitor::is_written;
use crate::wire::transport::messages;
use crate::{Address, Link, Neighbour, Route, Rule};

fn emitted(message: &impl Emitable) -> Vec<u8> {
    let mut bytes = vec![0; message.buffer_len()];
    message.emit(&mut bytes);
    bytes
}

fn address(family: Family) -> impl Strategy<Value = IpAddr> {
    any::<u128>().prop_map(move |bits| match family {
        Family::Ipv4 => Ipv4Addr::from_bits((bits & u128::from(u32::MAX)) as u32).into(),
        Family::Ipv6 => Ipv6Addr::from_bits(bits).into(),
    })
}

/// Not of length 0: "all" is read back as the absence of a network.
fn network(family: Family) -> impl Strategy<Value = IpNetwork> {
    (address(family), 1..=family.host_prefix()).prop_map(|(address, prefix)| {
        let network = IpNetwork::new(address, prefix).unwrap().network();
        IpNetwork::new(network, prefix).unwrap()
    })
}

fn family() -> impl Strategy<Value = Family> {
    any::<bool>().prop_map(|first| if first { Family::Ipv4 } else { Family::Ipv6 })
}

fn route() -> impl Strategy<Value = Route> {
    family().prop_flat_map(|family| {
        let numbers = (1..u32::MAX, 1..u32::MAX, any::<u8>(), option::of(1..1000_u32), option::of(1..65_536_u32));
        let addresses = (network(family), option::of(address(family)), option::of(address(family)));
        (numbers, addresses, any::<bool>()).prop_map(move |(numbers, (destination, gateway, source), onlink)| {
            let (oif, table, protocol, priority, mtu) = numbers;
            Route {
                gateway,
                source,
                onlink,
                scope_link: onlink && family == Family::Ipv4,
                priority,
                mtu: mtu.map(Mtu),
                ..Route::new(destination, oif, TableId(table), protocol)
            }
        })
    })
}

fn rule() -> impl Strategy<Value = Rule> {
    family().prop_flat_map(|family| {
        let networks = (option::of(network(family)), option::of(network(family)));
        let mark = option::of((any::<u32>(), 1..u32::MAX).prop_map(|(value, mask)| Mark { value, mask }));
        let numbers = (any::<u32>(), 1..u32::MAX, any::<u8>(), option::of(0..u32::MAX));
        (networks, mark, numbers, option::of("[a-z][a-z0-9.]{0,14}")).prop_map(
            move |((from, to), fwmark, (priority, table, protocol, suppress), iif)| Rule {
                suppress,
                from,
                to,
                fwmark,
                iif: iif.map(|name| IfName::new(name).unwrap()),
                ..Rule::new(family, Priority(priority), TableId(table), protocol)
            },
        )
    })
}

proptest! {
    #[test]
    fn requested_route_decodes_as_the_same_route(route in route()) {
        prop_assert_eq!(Route::decode(&emitted(&route.message())).unwrap(), Some(route));
    }

    #[test]
    fn requested_rule_decodes_as_the_same_rule(rule in rule()) {
        prop_assert_eq!(Rule::decode(&emitted(&rule.message())).unwrap(), Some(rule));
    }

    #[test]
    fn requested_neighbour_decodes_as_the_same_neighbour(
        (index, mac, protocol, proxy) in (any::<u32>(), any::<[u8; 6]>(), 1..=u8::MAX, any::<bool>()),
        address in family().prop_flat_map(address),
    ) {
        let neighbour = if proxy {
            Neighbour::proxy(index, address).by(protocol)
        } else {
            Neighbour::permanent(index, address, MacAddr(mac)).by(protocol)
        };
        prop_assert_eq!(Neighbour::decode(&emitted(&neighbour.message())).unwrap(), Some(neighbour));
    }

    #[test]
    fn noise_is_refused_and_never_panics(noise in vec(any::<u8>(), 0..200)) {
        let _ = (Link::decode(&noise).is_ok(), Address::decode(&noise).is_ok(), Route::decode(&noise).is_ok());
        let _ = (Rule::decode(&noise).is_ok(), Neighbour::decode(&noise).is_ok(), is_written(&noise).is_ok());
        let _ = (rule_of_a_table(&noise, "vcn-native").is_ok(), key_if_of_any(&noise, &HashSet::from([IpAddr::from([10, 0, 0, 8])])).is_ok());
        let _ = ListedChain::decode(&noise).is_ok();
        let _ = decode_features(&noise).is_ok();
        assert!(messages(&noise).count() <= noise.len());
    }

    /// Closer to the real thing than noise, and so deeper into the decoders.
    #[test]
    fn a_damaged_message_never_panics(route in route(), at in any::<proptest::sample::Index>(), with in any::<u8>()) {
        let mut bytes = emitted(&route.message());
        let position = at.index(bytes.len());
        bytes[position] = with;
        let _ = Route::decode(&bytes).is_ok();
        bytes.truncate(position);
        let _ = Route::decode(&bytes).is_ok();
    }
}
