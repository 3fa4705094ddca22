//! Options of links that node policies name, read and written as text: agent and uninstaller share it.

use std::collections::BTreeMap;

use netlink::ethtool::{self, Features};
use netlink::{LinkChange, Sysctls};
use tunables::{LinkOption, link_keys};
use vcn::{IfName, Mtu};

/// The kernel's features of an offload, by its name in objects.
fn features_of(offload: &str) -> &'static [&'static str] {
    match offload {
        "rxChecksum" => &["rx-checksum"],
        "txChecksum" => &["tx-checksum-ip-generic", "tx-checksum-ipv4", "tx-checksum-ipv6"],
        "tso" => {
            &["tx-tcp-segmentation", "tx-tcp-ecn-segmentation", "tx-tcp-mangleid-segmentation", "tx-tcp6-segmentation"]
        }
        "gso" => &["tx-generic-segmentation"],
        "gro" => &["rx-gro"],
        "lro" => &["rx-lro"],
        "rxHash" => &["rx-hashing"],
        "ntuple" => &["rx-ntuple-filter"],
        _ => &[],
    }
}

/// An option's value: a number, the text of a kernel setting, or for an offload `true`, `false`, or the features that are on where
/// only some are. `None` where kernel or device lack it.
///
/// # Errors
/// `is_not_found()` when the link is gone.
pub fn read_link_option(
    link: &IfName,
    option: &LinkOption,
    sysctls: &Sysctls,
) -> Result<Option<String>, netlink::Error> {
    if let LinkOption::Sysctl(key) = option {
        let Some(path) = link_keys::path(link.as_str(), key) else { return Ok(None) };
        return found(sysctls.read(&path).map(|value| Some(value.trim().to_owned())));
    }
    let known = netlink::Socket::open()?.link(link)?;
    match option {
        LinkOption::Mtu => return Ok(Some(known.mtu.0.to_string())),
        LinkOption::TxQueueLength => return Ok(Some(known.queue_length.to_string())),
        _ => {}
    }
    let Some(mut device) = ethtool::EthtoolSocket::open()? else { return Ok(None) };
    let quantity = match option {
        LinkOption::RingRx => supported(device.rings(link))?.map(|it| it.rx),
        LinkOption::RingTx => supported(device.rings(link))?.map(|it| it.tx),
        LinkOption::ChannelsRx => supported(device.channels(link))?.map(|it| it.rx),
        LinkOption::ChannelsTx => supported(device.channels(link))?.map(|it| it.tx),
        LinkOption::ChannelsCombined => supported(device.channels(link))?.map(|it| it.combined),
        LinkOption::Offload(name) => {
            return Ok(supported(device.features(link))?.and_then(|it| text_of(features_of(name), &it)));
        }
        _ => None,
    };
    Ok(quantity.filter(|it| it.limit != 0).map(|it| it.current.to_string()))
}

/// Sets an option to a value as [`read_link_option`] returns it. Returns whether kernel and device have the option and can change
/// it.
///
/// # Errors
/// When the kernel or the device refuses the value.
pub fn write_link_option(
    link: &IfName,
    option: &LinkOption,
    value: &str,
    sysctls: &Sysctls,
) -> Result<bool, netlink::Error> {
    let change = |change: LinkChange<'_>| netlink::Socket::open()?.change_link_named(link, &[change]).map(|()| true);
    let number = value.parse::<u32>().ok();
    match (option, number) {
        (LinkOption::Sysctl(key), _) => match link_keys::path(link.as_str(), key) {
            Some(path) => return sysctls.write(&path, value).map(|_changed| true),
            None => return Ok(false),
        },
        (LinkOption::Mtu, Some(number)) => return change(LinkChange::Mtu(Mtu(number))),
        (LinkOption::TxQueueLength, Some(number)) => return change(LinkChange::QueueLength(number)),
        _ => {}
    }
    let Some(mut device) = ethtool::EthtoolSocket::open()? else { return Ok(false) };
    let written = match (option, number) {
        (LinkOption::RingRx, Some(_)) => device.set_rings(link, number, None),
        (LinkOption::RingTx, Some(_)) => device.set_rings(link, None, number),
        (LinkOption::ChannelsRx, Some(_)) => device.set_channels(link, number, None, None),
        (LinkOption::ChannelsTx, Some(_)) => device.set_channels(link, None, number, None),
        (LinkOption::ChannelsCombined, Some(_)) => device.set_channels(link, None, None, number),
        (LinkOption::Offload(name), _) => {
            let Some(known) = supported(device.features(link))? else { return Ok(false) };
            let requested = requested(features_of(name), &known, value);
            if requested.is_empty() {
                return Ok(false);
            }
            device.set_features(link, &requested)
        }
        _ => return Ok(false),
    };
    Ok(supported(written)?.is_some())
}

/// The state of features that belong together: of those that can be changed, if there are any.
fn text_of(names: &[&str], features: &Features) -> Option<String> {
    let known: Vec<_> = names.iter().filter_map(|name| features.get_key_value(*name)).collect();
    let changeable: Vec<_> = known.iter().filter(|(_, it)| it.is_changeable).collect();
    if changeable.is_empty() {
        // The kernel lists a feature that is off for good like one that the device lacks.
        return known.iter().any(|(_, it)| it.is_active).then(|| true.to_string());
    }
    let on: Vec<&str> = changeable.iter().filter(|(_, it)| it.is_requested).map(|(name, _)| name.as_str()).collect();
    Some(match on.len() {
        0 => false.to_string(),
        all if all == changeable.len() => true.to_string(),
        _ => on.join(","),
    })
}

/// What to request of features that belong together.
fn requested(names: &[&str], features: &Features, value: &str) -> BTreeMap<String, bool> {
    let is_on = |name: &str| match value {
        "true" => true,
        "false" => false,
        list => list.split(',').any(|listed| listed == name),
    };
    let changeable = names.iter().filter(|name| features.get(**name).is_some_and(|it| it.is_changeable));
    changeable.map(|name| ((*name).to_owned(), is_on(name))).collect()
}

/// Without what the driver does not have.
fn supported<T>(result: Result<T, netlink::Error>) -> Result<Option<T>, netlink::Error> {
    match result {
        Err(error) if error.is_unsupported() => Ok(None),
        result => result.map(Some),
    }
}

/// Without what is not there.
fn found(result: Result<Option<String>, netlink::Error>) -> Result<Option<String>, netlink::Error> {
    match result {
        Err(error) if error.is_not_found() => Ok(None),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use netlink::ethtool::Feature;

    use super::*;

    #[test]
    fn offload_is_on_off_or_a_list_and_comes_back_as_it_was() {
        let feature = |is_requested, is_changeable| Feature { is_active: is_requested, is_requested, is_changeable };
        let features = |states: &[(&str, bool, bool)]| -> Features {
            states.iter().map(|(name, on, changes)| ((*name).to_owned(), feature(*on, *changes))).collect()
        };
        let names = features_of("tso");
        let (plain, ecn, fixed) = ("tx-tcp-segmentation", "tx-tcp-ecn-segmentation", "tx-tcp-mangleid-segmentation");
        for (states, text) in [
            (&[(plain, true, true), (ecn, true, true), (fixed, false, false)][..], Some("true")),
            (&[(plain, false, true), (ecn, false, true)], Some("false")),
            (&[(plain, true, true), (ecn, false, true)], Some("tx-tcp-segmentation")),
            (&[(plain, true, false)], Some("true")),
            (&[(plain, false, false)], None),
            (&[], None),
        ] {
            let known = features(states);
            assert_eq!(text_of(names, &known).as_deref(), text, "{states:?}");
            let Some(text) = text else { continue };
            let back = requested(names, &known, text);
            let changeable = states.iter().filter(|(_, _, changes)| *changes);
            assert_eq!(back, changeable.map(|(name, on, _)| ((*name).to_owned(), *on)).collect(), "{states:?}");
        }
        for name in tunables::item::OFFLOADS {
            assert!(!features_of(name).is_empty(), "{name}");
        }
    }
}
