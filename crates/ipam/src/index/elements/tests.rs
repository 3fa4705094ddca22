//! The elements of the lists: as written, as the standard library reads addresses, and refused in their own words.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;

fn addresses() -> impl Strategy<Value = IpAddr> {
    prop_oneof![any::<Ipv4Addr>().prop_map(IpAddr::V4), any::<Ipv6Addr>().prop_map(IpAddr::V6)]
}

proptest! {
    #[test]
    fn an_address_is_what_the_standard_library_takes_for_one(text in "[0-9a-f.:]{0,20}|([0-9]{1,3}\\.){3}[0-9]{1,3}") {
        let ours = freed(&format!("{text}@1")).ok().map(|found| found.into_iter().map(|freed| freed.address).collect());
        prop_assert_eq!(ours, text.parse::<IpAddr>().ok().map(|address| vec![address]), "{}", text);
    }

    #[test]
    fn every_address_and_time_is_read_as_it_was_written(address in addresses(), at: u64, forgotten: bool) {
        let text = format!("{address}@{at}{}", if forgotten { "!" } else { "" });
        prop_assert_eq!(freed(&text), Ok(vec![FreedAddress { address, at: BootTime(at), forgotten }]));
        let text = format!("a-1={address},{address}");
        prop_assert_eq!(held(&text), Ok(vec![IndexEntry { name: "a-1".into(), addresses: vec![address; 2] }]));
    }

    #[test]
    fn no_text_is_too_strange(text in "\\PC{0,40}|[a=,@! 0-9.:é]{0,40}") {
        for wrong in [held(&text).err(), freed(&text).err()].into_iter().flatten() {
            prop_assert!(!wrong.is_empty() && text.contains(wrong), "{}", wrong);
        }
    }
}

#[test]
fn a_time_that_no_clock_shows_is_none() {
    assert_eq!(freed("10.0.0.1@18446744073709551616"), Err("10.0.0.1@18446744073709551616"));
}
