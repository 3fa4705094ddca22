//! Restores kernel settings that no other program changed or needs.

use std::path::Path;

use netlink::{LinkChange, Socket, Sysctls};
use vcn::{IfName, Mtu};

use super::{DOWN, Error, LINK, MTU, Note, OtherNetworks, Removal, STATE, UP, changed};

enum Setting<'a> {
    /// Its path below /proc/sys.
    Sysctl(Vec<&'a str>),
    Mtu(IfName),
    /// Whether a link is up.
    State(IfName),
}

/// Restores the noted settings. One that another program changed since stays. Forwarding stays for another pod network, which
/// found it set and had no reason to set it, and so does `accept_ra`, which the host then needs for its default route. A link
/// that another program uses stays as it is, and keeps IPv6.
pub(in crate::uninstall) fn restore(
    data_dir: &Path,
    sysctl_root: &Path,
    others: &OtherNetworks,
    removal: &mut Removal,
) {
    let changed = match changed(data_dir) {
        Ok(changed) => changed,
        Err(error) => return removal.failures.push(error),
    };
    let sysctls = Sysctls::new(sysctl_root);
    // Links last: a setting of a link that is down may be gone.
    let (links, plain): (Vec<_>, Vec<_>) = changed.into_iter().partition(|(key, _)| key.starts_with(LINK));
    for (key, note) in plain.iter().chain(&links) {
        let Some(setting) = Setting::parse(key) else {
            removal.left.push(format!("setting {key}: it is not a network setting"));
            continue;
        };
        let now = match setting.read(&sysctls) {
            Ok(now) if now == note.before => continue,
            Ok(now) => now,
            // Gone with its link, for example.
            Err(error) if error.is_not_found() => continue,
            Err(error) => {
                removal.failures.push(Error::kernel(format!("removing setting {key}"))(error));
                continue;
            }
        };
        match setting.kept_because(&now, note, others) {
            Some(why) => removal.left.push(format!("setting {key}: {why}")),
            None => removal.step(format!("restore {key} to {}", note.before), || {
                setting.write(&note.before, &sysctls).map_err(Error::kernel(format!("removing setting {key}")))
            }),
        }
    }
}

impl<'a> Setting<'a> {
    fn parse(key: &'a str) -> Option<Self> {
        let parts: Vec<&str> = key.split('/').collect();
        match parts[..] {
            ["link", name, MTU] => Some(Self::Mtu(name.parse().ok()?)),
            ["link", name, STATE] => Some(Self::State(name.parse().ok()?)),
            ["net", ..] if parts.iter().all(|part| !part.is_empty() && *part != "..") => Some(Self::Sysctl(parts)),
            _ => None,
        }
    }

    /// Why it is not restored.
    fn kept_because(&self, now: &str, note: &Note, others: &OtherNetworks) -> Option<String> {
        if now != note.set {
            return Some(format!("another program changed it to {now} since"));
        }
        match self {
            Self::Mtu(link) | Self::State(link) => others.user_of_link(link),
            Self::Sysctl(path) => match path[..] {
                [.., "ip_forward" | "forwarding"] => others.network(),
                // While forwarding is on, the kernel honors router advertisements only with 2.
                ["net", "ipv6", "conf", _, "accept_ra"] if now == "2" => others.network(),
                // Every IPv6 address of the link would be removed. `all` and `default` are no links.
                ["net", "ipv6", "conf", name, "disable_ipv6"] => others.user_of_link(&name.parse().ok()?),
                _ => None,
            },
        }
    }

    fn read(&self, sysctls: &Sysctls) -> Result<String, netlink::Error> {
        let state = |up| if up { UP } else { DOWN };
        match self {
            Self::Sysctl(path) => Ok(sysctls.read(path)?.trim().to_owned()),
            Self::Mtu(name) => Ok(Socket::open()?.link(name)?.mtu.0.to_string()),
            Self::State(name) => Ok(state(Socket::open()?.link(name)?.up).to_owned()),
        }
    }

    fn write(&self, value: &str, sysctls: &Sysctls) -> Result<(), netlink::Error> {
        let (name, change) = match self {
            Self::Sysctl(path) => return sysctls.write(path, value).map(drop),
            Self::Mtu(name) => (name, value.parse().map(|mtu| LinkChange::Mtu(Mtu(mtu))).ok()),
            // A link that was up before is not noted.
            Self::State(name) => (name, (value == DOWN).then_some(LinkChange::Down)),
        };
        change.map_or(Ok(()), |change| Socket::open()?.change_link_named(name, &[change]))
    }
}
