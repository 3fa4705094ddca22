//! A VNIC's link: its MTU, and that it is up.

use netlink::{Link, LinkChange, Socket};
use vcn::{IfName, Mtu};

use super::{DOWN, Error, LINK, MTU, OtherNetworks, Removal, STATE, UP};

/// Restores it, unless the link is gone, or another program changed it or uses the link.
pub(super) fn restore(key: &str, (before, set): (&str, &str), others: &OtherNetworks, removal: &mut Removal) {
    let failed = |source| Error::Network { what: format!("setting {key}"), source };
    let parts = key.strip_prefix(LINK).and_then(|rest| rest.split_once('/'));
    let parsed = parts.and_then(|(name, what)| Some((name.parse::<IfName>().ok()?, what)));
    let change = parsed.as_ref().and_then(|(_, what)| change(what, before));
    let (Some((name, what)), Some(change)) = (parsed, change) else {
        return removal.left.push(format!("setting {key}: it is unknown"));
    };
    let found = Socket::open().and_then(|mut socket| Ok((socket.link(&name)?, socket)));
    let (link, mut socket) = match found {
        Ok(found) => found,
        Err(error) if error.is_not_found() => return,
        Err(error) => return removal.failures.push(failed(error)),
    };
    match value(what, &link) {
        now if now == before => {}
        now if now != set => removal.left.push(format!("setting {key}: another program changed it to {now} since")),
        _ => match others.user_of_link(&mut socket, &link) {
            Err(error) => removal.failures.push(failed(error)),
            Ok(Some(used)) => removal.left.push(format!("setting {key}: {used}")),
            Ok(None) => removal.step(format!("restore {key} to {before}"), || {
                socket.change_link(link.index, &[change]).map_err(failed)
            }),
        },
    }
}

/// Why the link of that name stays as it is.
pub(super) fn user(name: &str, others: &OtherNetworks) -> Result<Option<String>, netlink::Error> {
    // We never set one of an invalid name.
    let Ok(name) = name.parse::<IfName>() else { return Ok(None) };
    let mut socket = Socket::open()?;
    match socket.link(&name) {
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
        Ok(link) => others.user_of_link(&mut socket, &link),
    }
}

fn change(what: &str, before: &str) -> Option<LinkChange<'static>> {
    match (what, before) {
        (MTU, mtu) => Some(LinkChange::Mtu(Mtu(mtu.parse().ok()?))),
        (STATE, DOWN) => Some(LinkChange::Down),
        _ => None,
    }
}

fn value(what: &str, link: &Link) -> String {
    match what {
        MTU => link.mtu.0.to_string(),
        _ if link.up => UP.to_owned(),
        _ => DOWN.to_owned(),
    }
}
