//! What was changed of a link that is not ours: its MTU, and that it is up.

use netlink::{Link, LinkChange, Socket};
use vcn::{IfName, Mtu};

use crate::settings_before::{DOWN, LINK, MTU, STATE, UP};
use crate::uninstall::Others;
use crate::{Error, Removal};

/// Makes it what it was, unless the link is gone, somebody changed it since, or others may live by the link.
pub(super) fn restore(key: &str, (before, set): (&str, &str), others: &Others, removal: &mut Removal) {
    let failed = |source| Error::Network { what: format!("setting {key}"), source };
    let parts = key.strip_prefix(LINK).and_then(|rest| rest.split_once('/'));
    let parsed = parts.and_then(|(name, what)| Some((name.parse::<IfName>().ok()?, what)));
    let change = parsed.as_ref().and_then(|(_, what)| change(what, before));
    let (Some((name, what)), Some(change)) = (parsed, change) else {
        return removal.left.push(format!("setting {key}: it is not one that is known"));
    };
    let found = Socket::open().and_then(|mut socket| Ok((socket.link(&name)?, socket)));
    let (link, mut socket) = match found {
        Ok(found) => found,
        Err(error) if error.is_not_found() => return,
        Err(error) => return removal.failures.push(failed(error)),
    };
    match value(what, &link) {
        now if now == before => {}
        now if now != set => removal.left.push(format!("setting {key}: somebody made it {now} since")),
        _ => match others.of_link(&mut socket, &link) {
            Err(error) => removal.failures.push(failed(error)),
            Ok(Some(used)) => removal.left.push(format!("setting {key}: {used}")),
            Ok(None) => removal.step(format!("set {key} to {before} again"), || {
                socket.change_link(link.index, &[change]).map_err(failed)
            }),
        },
    }
}

/// Why the link of a name is left as it is.
pub(super) fn user(name: &str, others: &Others) -> Result<Option<String>, netlink::Error> {
    // One that is no name was never set by us.
    let Ok(name) = name.parse::<IfName>() else { return Ok(None) };
    let mut socket = Socket::open()?;
    match socket.link(&name) {
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
        Ok(link) => others.of_link(&mut socket, &link),
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
