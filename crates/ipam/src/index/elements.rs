//! The elements of the index's lists: `name=address,address` and `address@time`, with `!` at the end.

use super::FORGOTTEN;
use crate::allocations::IndexEntry;
use crate::records::is_name;
use crate::{BootTime, FreedAddress};

/// The holdings in a list.
///
/// # Errors
/// The first element that is not one.
pub(super) fn held(list: &str) -> Result<Vec<IndexEntry>, &str> {
    read(list, |element| {
        let (name, addresses) = element.split_once('=')?;
        let addresses = match addresses {
            "" => Vec::new(),
            some => some.split(',').map(str::parse).collect::<Result<_, _>>().ok()?,
        };
        is_name(name).then(|| IndexEntry { name: name.to_owned(), addresses })
    })
}

/// The freed addresses in a list.
///
/// # Errors
/// The first element that is not one.
pub(super) fn freed(list: &str) -> Result<Vec<FreedAddress>, &str> {
    read(list, |element| {
        let (address, time) = element.split_once('@')?;
        let (time, forgotten) = time.strip_suffix(FORGOTTEN).map_or((time, false), |time| (time, true));
        let digits = time.bytes().all(|byte| byte.is_ascii_digit());
        let at = BootTime(time.parse().ok().filter(|_| digits)?);
        Some(FreedAddress { address: address.parse().ok()?, at, forgotten })
    })
}

fn read<T>(list: &str, element: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, &str> {
    list.split(' ').filter(|text| !text.is_empty()).map(|text| element(text).ok_or(text)).collect()
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_address_and_time_is_read_as_it_was_written(address: IpAddr, at: u64, forgotten: bool) {
            let text = format!("{address}@{at}{}", if forgotten { "!" } else { "" });
            prop_assert_eq!(freed(&text), Ok(vec![FreedAddress { address, at: BootTime(at), forgotten }]));
            let text = format!("a-1={address},{address}");
            prop_assert_eq!(held(&text), Ok(vec![IndexEntry { name: "a-1".into(), addresses: vec![address; 2] }]));
        }
    }
}
