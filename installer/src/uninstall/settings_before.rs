//! Kernel settings as they were before us, set again where nobody else has a hand in them.

mod link;
#[cfg(test)]
mod tests;

use std::path::Path;

use netlink::Sysctls;

use super::Others;
use crate::settings_before::{LINK, Note, changed};
use crate::{Error, Removal};

/// Sets them as they were, unless somebody changed one since. Where nothing was noted, nothing is known, and nothing is
/// changed. Forwarding stays where another pod network is there: it found that set, and has no reason to set it; and with
/// it that the host heeds router advertisements nevertheless. A link that others may live by stays as it is, and keeps
/// IPv6, without which it would have no addresses of it.
pub(super) fn restore(data_dir: &Path, sysctl_root: &Path, others: &Others, removal: &mut Removal) {
    let changed = match changed(data_dir) {
        Ok(changed) => changed,
        Err(error) => return removal.failures.push(error),
    };
    let sysctls = Sysctls::new(sysctl_root);
    // A link that goes down takes nothing along that is set before.
    let (links, plain): (Vec<_>, Vec<_>) = changed.into_iter().partition(|(name, _)| name.starts_with(LINK));
    for (name, Note { before, set, .. }) in plain {
        set_again(&name, (&before, &set), (&sysctls, others), removal);
    }
    for (name, Note { before, set, .. }) in links {
        link::restore(&name, (&before, &set), others, removal);
    }
}

fn set_again(name: &str, (before, set): (&str, &str), (sysctls, others): (&Sysctls, &Others), removal: &mut Removal) {
    let failed = |source| Error::Network { what: format!("setting {name}"), source };
    let key: Vec<&str> = name.split('/').collect();
    if key.first() != Some(&"net") || key.iter().any(|part| part.is_empty() || *part == "..") {
        return removal.left.push(format!("setting {name}: it is not one of the network's"));
    }
    let now = match sysctls.read(&key) {
        // With its link, for example.
        Err(error) if error.is_not_found() => return,
        Err(source) => return removal.failures.push(failed(source)),
        Ok(now) => now,
    };
    match now.trim() {
        now if now == before => return,
        now if now != set => return removal.left.push(format!("setting {name}: somebody made it {now} since")),
        _ => {}
    }
    let used = match &key[..] {
        [.., "ip_forward" | "forwarding"] => Ok(others.network()),
        // Where forwarding stays on, the kernel heeds router advertisements only so: the host's default route is of one.
        ["net", "ipv6", "conf", _, "accept_ra"] if set == "2" => Ok(others.network()),
        // Every IPv6 address of the link would go with it.
        ["net", "ipv6", "conf", link, "disable_ipv6"] => link::user(link, others),
        _ => Ok(None),
    };
    match used {
        Err(source) => removal.failures.push(failed(source)),
        Ok(Some(used)) => removal.left.push(format!("setting {name}: {used}")),
        Ok(None) => removal
            .step(format!("set {name} to {before} again"), || sysctls.write(&key, before).map(drop).map_err(failed)),
    }
}
